;;;; Backtraces that show the user's frames, and reports of conditions.

(in-package #:dovetail-lisp)

(defparameter *max-frames* 20)

(defun internal-package-p (package)
  (and package
       (or (eq package (load-time-value (find-package "DOVETAIL-LISP")))
           (let ((name (package-name package)))
             (and name (> (length name) 3) (string= "SB-" name :end2 3))))))

(defun internal-name-p (name)
  "Whether a frame belongs to the machinery below an error and not to the program."
  (typecase name
    (string t)
    (symbol (or (internal-package-p (symbol-package name))
                (member name '(error cerror signal warn break invoke-debugger))))
    (cons (some #'internal-name-p
                (remove-if (lambda (part) (member part '(lambda flet labels setf :in nil)))
                           (loop for part in name when (symbolp part) collect part))))
    (t nil)))

(defun our-own-name-p (name)
  "Whether a frame is the bridge's, which prints values for instance."
  (if (consp name)
      (some #'our-own-name-p name)
      (and (symbolp name)
           (eq (symbol-package name) (load-time-value (find-package "DOVETAIL-LISP"))))))

(defun frame-name (frame)
  (sb-di:debug-fun-name (sb-di:frame-debug-fun frame)))

(defun frames-of-program ()
  "The frames from the program's innermost down to the evaluated form's, and whether
the innermost was a call of an undefined function."
  (let ((frame (sb-di:top-frame)) (undefined nil))
    ;; The handler that called us stands on top of what it handles.
    (loop while (and frame (internal-name-p (frame-name frame))
                     (not (eq (frame-name frame) 'call-evaluator))
                     (not (eq (frame-name frame) 'sb-int:simple-eval-in-lexenv)))
          do (when (equal (frame-name frame) "undefined function")
               (setf undefined frame))
             (setf frame (sb-di:frame-down frame)))
    (values (loop repeat 2000
                  while (and frame (not (eq (frame-name frame) 'call-evaluator)))
                  collect frame
                  do (setf frame (sb-di:frame-down frame)))
            undefined)))

(defun call-text (name arguments)
  (text-of (cons name arguments) :cap 300 :printer #'print-on-one-line))

(defun print-on-one-line (value stream)
  (let ((*print-pretty* nil) (*print-length* 12) (*print-level* 5))
    (prin1 value stream)))

(defun frame-call-text (frame)
  (multiple-value-bind (name arguments) (sb-debug::frame-call frame)
    (call-text name arguments)))

(defun evaluated-form (frame)
  "The form whose evaluation FRAME is, and true; compiled forms of the top level look like this."
  (when (eq (frame-name frame) 'sb-int:simple-eval-in-lexenv)
    (let ((arguments (nth-value 1 (sb-debug::frame-call frame))))
      (values (first arguments) t))))

(defun shown-frames (frames &optional above)
  "Pairs of a frame and its text. READ and EVAL are not shown; the form that is evaluated is,
unless the frame above (at first: of the function ABOVE) is that very call."
  (let ((shown '()))
    (dolist (frame frames (nreverse shown))
      (when (>= (length shown) *max-frames*)
        (return (nreverse shown)))
      (multiple-value-bind (form evaluated) (evaluated-form frame)
        (cond ((hidden-name-p (frame-name frame)))
              ((not evaluated)
               (push (cons frame (frame-call-text frame)) shown)
               (setf above (sb-debug::frame-call frame)))
              ((not (and above (consp form) (eq (first form) above)))
               (push (cons frame (text-of form :cap 300 :printer #'print-on-one-line)) shown)
               (setf above nil)))))))

(defun hidden-name-p (name)
  (or (member name '(eval read (lambda ())) :test #'equal)
      (our-own-name-p name)))

(defun backtrace-texts (job condition)
  "The lines of a backtrace, innermost first; not empty when a form was at work."
  (multiple-value-bind (frames undefined) (frames-of-program)
    (let ((name (and undefined (typep condition 'undefined-function)
                     (cell-error-name condition))))
      (or (append
           (when name
             (list (call-text name (nth-value 1 (sb-debug::frame-call undefined)))))
           (mapcar #'cdr (shown-frames frames name)))
          (when (job-form job)
            (list (text-of (job-form job) :cap 300 :printer #'print-on-one-line)))))))

(defun names-only (frames)
  "On an exhausted stack there is no room to print arguments."
  (loop for frame in frames
        repeat *max-frames*
        collect (format nil "(~A ...)" (frame-name frame))))

(defun condition-report (condition job)
  (object "type" (type-text (type-of condition))
          "message" (message-of condition)
          "frames" (if (typep condition 'sb-kernel::control-stack-exhausted)
                       (ignore-errors (names-only (frames-of-program)))
                       (backtrace-texts job condition))
          "restarts" (restart-reports condition)))

(defun restart-reports (condition)
  (loop for restart in (program-restarts condition)
        for number from 0
        collect (object "number" number
                        "name" (text-of (restart-name restart) :printer #'princ)
                        "text" (text-of restart :printer #'princ :cap 300)
                        "interactive" (json-boolean
                                       (sb-kernel::restart-interactive-function restart)))))

(defun program-restarts (condition)
  (remove-if (lambda (restart) (member restart *outer-restarts*))
             (compute-restarts condition)))
