;;;; When an error would enter the debugger, and when code wants input.

(in-package #:dovetail-lisp)

(defun enter-debugger (condition hook)
  "Nobody handled CONDITION: report it and unwind, or wait for the client to choose a restart."
  (declare (ignore hook))
  (let ((job *job*))
    (if (and (job-debug job) (not (typep condition 'storage-condition)))
        (suspend-in-debugger condition job)
        (fail-job condition job))))

(defun fail-job (condition job)
  (setf (job-failure job) (handler-case (condition-report condition job)
                            (serious-condition ()
                              (object "type" (safe-class-name condition)
                                      "message" "(the error cannot be printed)"
                                      "frames" '() "restarts" '())))
        (job-status job) :error)
  (throw (job-tag job) nil))

;;; -- suspending ----------------------------------------------------------------------------

(defun next-command (job)
  (sb-thread:wait-on-semaphore (job-command-ready job))
  (sb-thread:with-mutex ((job-commands-lock job))
    (pop (job-commands job))))

(defun give-command (job command)
  (sb-thread:with-mutex ((job-commands-lock job))
    (setf (job-commands job) (append (job-commands job) (list command))))
  (sb-thread:signal-semaphore (job-command-ready job)))

(defun suspend-in-debugger (condition job)
  (let ((report (condition-report condition job))
        (frames (mapcar #'car (shown-frames (frames-of-program))))
        (restarts (program-restarts condition)))
    (step-aside job)
    (loop
      (send (job-connection job) "id" (job-id job) "event" "suspended" "reason" "error"
                                 "failure" report
                                 "stdout" (report-unless-empty (job-stdout job))
                                 "stderr" (report-unless-empty (job-stderr job)))
      (loop for (kind . arguments) = (next-command job)
            until (case kind
                    (:restart (apply #'choose-restart job restarts arguments) t)
                    (:abandon (fail-job condition job))
                    (:in-frame (apply #'run-in-frame job frames arguments) nil))))))

(defun choose-restart (job restarts &key number value)
  (let ((restart (nth number restarts)))
    (when restart
      (if (sb-kernel::restart-interactive-function restart)
          (let* ((input (make-instance 'client-input :job job
                                                     :text (if value (format nil "~A~%" value) "")))
                 ;; Nobody needs to see the question whose answer is given.
                 (output (if value (make-broadcast-stream) (job-stdout job)))
                 (*query-io* (make-two-way-stream input output)))
            (invoke-restart-interactively restart))
          (invoke-restart restart)))))

(defun run-in-frame (job frames &key request operation frame code)
  "A request about the suspended job, done on its own stack and answered like any job."
  (let ((inner (make-job :id request :connection (job-connection job)
                         :operation (make-operation
                                     :name operation
                                     :function (lambda () (frame-operation operation frames frame code))))))
    (prepare-job inner)
    (setf (gethash request (conn-jobs (job-connection job))) inner)
    (run-job inner)))

(defun frame-operation (operation frames number code)
  (let ((frame (or (nth number frames)
                   (error "There is no frame ~D: the backtrace has ~D frame~:P, from 0."
                          number (length frames)))))
    (if (string= operation "locals")
        (frame-locals frame)
        (value-reports (multiple-value-list (evaluate-in-frame frame code))))))

(defun frame-locals (frame)
  "Name and value of each variable that is known and valid where the frame stands."
  (let ((location (sb-di:frame-code-location frame))
        (debug-fun (sb-di:frame-debug-fun frame))
        (locals '()))
    (when (sb-di:debug-var-info-available debug-fun)
      (sb-di:do-debug-fun-vars (variable debug-fun)
        (when (and (symbol-package (sb-di:debug-var-symbol variable)) ; not made by a macro
                   (eq (sb-di:debug-var-validity variable location) :valid))
          (push (object "name" (symbol-name (sb-di:debug-var-symbol variable))
                        "value" (text-of (sb-di:debug-var-value variable frame)))
                locals))))
    (nreverse locals)))

(defun evaluate-in-frame (frame code)
  (let ((form (read-from-string code)))
    (check-permitted form)
    (handler-case (sb-di:preprocess-for-eval form (sb-di:frame-code-location frame))
      (sb-di:debug-condition () (eval form)) ; compiled without debug information
      (:no-error (function) (funcall function frame)))))

(define-operation ("command" :immediate t) (&key job command)
  "Say something to a suspended job; true if there is such a job."
  (let ((job (gethash job (conn-jobs *connection*))))
    (when job (give-command job command))
    (json-boolean job)))

;;; -- input ---------------------------------------------------------------------------------

(defclass client-input (sb-gray:fundamental-character-input-stream)
  ((job :initarg :job :reader input-job)
   (text :initarg :text :accessor input-text)
   (position :initform 0 :accessor input-position)))

(defun ask-for-line (stream)
  "Fetch a line from the client; nil if it cannot be asked."
  (let ((job (input-job stream)))
    (setf (job-wanted-input job) t)
    (when (job-interactive job)
      (step-aside job)
      (send (job-connection job) "id" (job-id job) "event" "suspended" "reason" "input"
                                 "prompt" (prompt-text job)
                                 "stdout" (report-unless-empty (job-stdout job))
                                 "stderr" (report-unless-empty (job-stderr job)))
      (loop for (kind . arguments) = (next-command job)
            do (case kind
                 (:line (setf (input-text stream) (format nil "~A~%" (getf arguments :text))
                              (input-position stream) 0)
                  (return t))
                 (:abandon (return nil)))))))

(defun prompt-text (job)
  "The last line printed, which is most often the question."
  (let* ((text (string-right-trim '(#\Newline #\Space) (captured-text (job-stdout job))))
         (line (position #\Newline text :from-end t)))
    (subseq text (if line (1+ line) 0))))

(defmethod sb-gray:stream-read-char ((stream client-input))
  (loop
    (when (< (input-position stream) (length (input-text stream)))
      (return (prog1 (char (input-text stream) (input-position stream))
                (incf (input-position stream)))))
    (unless (ask-for-line stream)
      (return :eof))))

(defmethod sb-gray:stream-unread-char ((stream client-input) char)
  (declare (ignore char))
  (when (plusp (input-position stream))
    (decf (input-position stream)))
  nil)

(defmethod sb-gray:stream-listen ((stream client-input))
  (< (input-position stream) (length (input-text stream))))

(defmethod sb-gray:stream-read-char-no-hang ((stream client-input))
  (when (sb-gray:stream-listen stream)
    (sb-gray:stream-read-char stream)))

(defmethod sb-gray:stream-clear-input ((stream client-input))
  nil)

(defmethod sb-gray:stream-line-column ((stream client-input))
  "SBCL asks the input side of a two-way stream for the column of its output."
  (sb-gray:stream-line-column (job-stdout (input-job stream))))
