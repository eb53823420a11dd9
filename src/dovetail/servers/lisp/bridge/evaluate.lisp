;;;; Reading and evaluating text, form by form.

(in-package #:dovetail-lisp)

(defun find-package-or-fail (name)
  (or (find-package name)
      (find-package (string-upcase name))
      (error 'sb-kernel:simple-package-error
             :package name
             :format-control "The package ~S does not exist."
             :format-arguments (list name))))

(defun call-in-package (name function)
  "Call FUNCTION in the package NAME (nil: the session's). The session's package
stays as it is, unless FUNCTION itself went to another one."
  (if (null name)
      (funcall function)
      (let* ((given (find-package-or-fail name))
             (before *package*))
        (setf *package* given)
        (unwind-protect (funcall function)
          (when (eq *package* given)
            (setf *package* before))))))

;;; A frame of this function is where backtraces end.
(declaim (notinline call-evaluator))
(defun call-evaluator (function &rest arguments)
  (multiple-value-prog1 (apply function arguments)))

(defun remember-values (form values)
  (shiftf +++ ++ + form)
  (shiftf /// // / values)
  (shiftf *** ** * (first values)))

(defun evaluate-form (form)
  (setf (job-form *job*) form)
  (setf - form)
  (let ((values (multiple-value-list (call-evaluator #'eval form))))
    (remember-values form values)
    values))

(defun map-forms (function text)
  "Call FUNCTION with each form of TEXT and where it starts and ends. Each is read
only after the one before was done, since that may have changed how to read."
  (with-input-from-string (stream text)
    (loop
      (let ((start (skip-blanks text (file-position stream))))
        (file-position stream (min start (length text)))
        ;; What a backtrace shows if there is no form yet.
        (setf (job-form *job*) `(read ,(subseq text start (min (length text) (+ start 60)))))
        (let ((form (call-evaluator #'read stream nil stream)))
          (when (eq form stream) (return))
          (funcall function form start (file-position stream)))))))

(defun skip-blanks (text start)
  (or (position-if-not (lambda (char) (member char '(#\Space #\Newline #\Tab #\Return #\Page)))
                       text :start (min start (length text)))
      (length text)))

;;; -- definitions, for the journal ------------------------------------------------------

(defparameter *journal-operators*
  '("IN-PACKAGE" "DECLAIM" "PROCLAIM" "USE-PACKAGE" "IMPORT" "EXPORT" "SHADOW" "REQUIRE" "LOAD"
    "QUICKLOAD" "LOAD-SYSTEM" "SHADOWING-IMPORT" "SET-MACRO-CHARACTER"
    "SET-DISPATCH-MACRO-CHARACTER" "EVAL-WHEN"))

(defun definition-operator-p (symbol)
  (let ((name (symbol-name symbol)))
    (or (and (> (length name) 3) (string= "DEF" name :end2 3))
        (member name *journal-operators* :test #'string=))))

(defun definition-of (form package start end)
  "What the journal notes about FORM, or nil. The package is the one it was read in."
  (when (and (consp form) (symbolp (first form)) (definition-operator-p (first form)))
    (let ((name (second form)))
      (object "operator" (symbol-name (first form))
              "name" (if (consp (rest form)) (text-of name :cap 200) "")
              "package" package
              "start" start
              "end" end))))

;;; -- values and costs ---------------------------------------------------------------------

(defun value-report (value name)
  (let ((capture (limited-capture *job* name (conn-max-value *connection*))))
    (unwind-protect (progn (call-evaluator #'print-captured value capture)
                           (capture-report capture))
      (close-spool capture))))

(defun value-reports (values)
  (loop for value in values
        for index from 0
        collect (value-report value (format nil "value~D" index))))

(defun microseconds ()
  "Of the monotonic clock: that of GET-INTERNAL-REAL-TIME is coarse."
  (multiple-value-bind (seconds nanoseconds)
      (sb-unix::clock-gettime #+darwin 6 #-darwin 1) ; CLOCK_MONOTONIC
    (+ (* 1000000 seconds) (floor nanoseconds 1000))))

(defmacro timing-body (&body body)
  "The value of BODY, and what it cost as a JSON object."
  `(let ((real (microseconds)) (run (get-internal-run-time))
         (gc sb-ext:*gc-run-time*) (bytes (sb-ext:get-bytes-consed)))
     (let ((value (progn ,@body)))
       (values value
               (object "realMs" (round (- (microseconds) real) 1000)
                       "runMs" (milliseconds (- (get-internal-run-time) run))
                       "gcMs" (milliseconds (- sb-ext:*gc-run-time* gc))
                       "bytesConsed" (max 0 (- (sb-ext:get-bytes-consed) bytes)))))))

(defun milliseconds (units)
  (round (* 1000 units) internal-time-units-per-second))

;;; -- the operation -----------------------------------------------------------------------

(defun evaluate-text (code)
  "Evaluate the forms of CODE; the values of the last one."
  (let ((values '())
        (*read-eval* (and *read-eval* (not (conn-read-only *connection*)))))
    (map-forms (lambda (form start end)
                 (check-permitted form)
                 (let ((package (package-name *package*)))
                   (setf values (evaluate-form form))
                   (let ((definition (definition-of form package start end)))
                     (when definition (push definition (job-definitions *job*))))))
               code)
    values))

(define-operation ("evaluate") (&key code package)
  (call-in-package
   package
   (lambda ()
     (multiple-value-bind (values timing) (timing-body (evaluate-text code))
       (object "values" (value-reports values)
               "timing" timing)))))

(defun check-permitted (form)
  (when (conn-read-only *connection*)
    (refuse-changes form)))
