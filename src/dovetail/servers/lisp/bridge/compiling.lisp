;;;; Compiling without running, and counting forms without evaluating them.

(in-package #:dovetail-lisp)

(defun severity-of (condition)
  (typecase condition
    (sb-ext:compiler-note "note")
    (style-warning "style-warning")
    (warning "warning")
    (t "error")))

(defun context-form ()
  "The source form the compiler is at, if it says so."
  (ignore-errors
   (let ((context (sb-c::find-error-context nil)))
     (when context
       (let ((form (sb-c::compiler-error-context-original-form context)))
         (if (stringp form) form (text-of form :cap 300 :printer #'print-on-one-line)))))))

(defun call-with-diagnostics (function start)
  "Call FUNCTION; what the compiler said about the form at START, in order."
  (let ((found '()))
    (flet ((note (condition)
             (push (object "severity" (severity-of condition)
                           "type" (type-text (type-of condition))
                           "message" (message-of condition)
                           "form" (or (context-form) :omit)
                           "start" start)
                   found)))
      (handler-bind ((sb-c:compiler-error #'note)
                     (sb-ext:compiler-note (lambda (condition)
                                             (note condition)
                                             (muffle-warning condition)))
                     (warning (lambda (condition)
                                (note condition)
                                (muffle-warning condition))))
        (funcall function)))
    (nreverse found)))

(defun compile-only (form)
  (with-compilation-unit (:override t)
    (compile nil `(lambda () ,form))))

(define-operation ("compile-form") (&key code package)
  (call-in-package
   package
   (lambda ()
     (let ((diagnostics '()) (count 0))
       (map-forms (lambda (form start end)
                    (declare (ignore end))
                    (check-permitted form)
                    (setf (job-form *job*) form)
                    (incf count)
                    (setf diagnostics
                          (append diagnostics
                                  (call-with-diagnostics
                                   (lambda () (call-evaluator #'compile-only form)) start))))
                  code)
       (object "forms" count "diagnostics" diagnostics)))))

(define-operation ("count-forms") (&key code)
  "How many forms there are. Symbols are not made, packages need not exist."
  (let ((*read-suppress* t) (*read-eval* nil) (count 0))
    (map-forms (lambda (form start end)
                 (declare (ignore form start end))
                 (incf count))
               code)
    count))
