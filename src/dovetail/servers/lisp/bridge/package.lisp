;;;; The two packages: ours, and the one user code may talk to.

(defpackage #:dovetail-lisp
  (:use #:cl)
  (:export #:serve-descriptor #:listen-on #:define-operation))

(defpackage #:mcp
  (:use)
  (:export #:progress #:read-only #:object)
  (:documentation "What evaluated code may say to the client."))

(in-package #:dovetail-lisp)

(declaim (optimize (speed 1) (safety 1) (debug 1)))

;;; Loaded on demand: requiring a contrib costs 10 ms or more per process.
(defun call-in (module package name &rest arguments)
  "Call the function NAME of PACKAGE, which MODULE brings (nil: it is there)."
  (when (and module (not (find-package package)))
    (let ((*standard-output* (make-broadcast-stream))
          (*error-output* (make-broadcast-stream)))
      (require module)))
  (apply (find-symbol (string name) (string package)) arguments))
