;;;; Operations, and the jobs that run them: one thread, one at a time, interruptible.

(in-package #:dovetail-lisp)

(defstruct operation name function immediate changes)

(defvar *operations* (make-hash-table :test #'equal))

(defmacro define-operation ((name &key immediate changes) lambda-list &body body)
  "Define what a request named NAME does. It gets its arguments by keyword and returns JSON data.
An immediate operation runs in the thread that reads the channel: it must not wait or run user code.
Any other runs as a job: what it prints, its warnings and its error go into the answer by themselves.
One that CHANGES the image is refused by sessions that are read-only."
  (let ((function (intern (format nil "OPERATION-~:@(~A~)" name))))
    `(progn
       (defun ,function (,@lambda-list &allow-other-keys) ,@body)
       (setf (gethash ,name *operations*)
             (make-operation :name ,name :function #',function
                             :immediate ,immediate :changes ,changes)))))

(defstruct job
  id connection operation arguments
  tag thread                            ; set while it can be interrupted
  (status :ok) (data :null)
  (stdout nil) (stderr nil) (input nil)
  (warnings '()) (warning-count 0)
  (failure :null)                       ; JSON of the error or of the interrupt
  (wanted-input nil) (interactive nil) (debug nil)
  form                                  ; the top-level form at work
  (definitions '())                     ; those done so far, newest first
  (done 0) total note (progress-sent 0) (progress-due nil) (progress nil)
  (commands '()) (commands-lock (sb-thread:make-mutex :name "commands"))
  (command-ready (sb-thread:make-semaphore :name "command"))
  (suspended nil))

(defstruct worker thread job (ready (sb-thread:make-semaphore :name "job")))

(defvar *job* nil "The job this thread works on.")
(defvar *connection* nil "The connection this thread serves.")
(defvar *outer-restarts* '() "Those of the thread itself, which are not the program's.")

;;; -- what a session keeps between calls ------------------------------------------

(defparameter *session-variables*
  '(*package* *readtable* * ** *** / // /// + ++ +++ -))

(defun living-package (package)
  "PACKAGE, unless somebody deleted it."
  (cond ((package-name package) package)
        ((find-package "COMMON-LISP-USER"))
        (t (make-package "COMMON-LISP-USER" :use '("COMMON-LISP")))))

(defun initial-state ()
  (list* (living-package (or (find-package "COMMON-LISP-USER") *package*))
         (copy-readtable nil)
         (make-list (- (length *session-variables*) 2))))

(defun call-with-state (connection function)
  "Bind the variables of the session; keep what FUNCTION changes, also when it fails.
Only what changed: another evaluation may have run while this one was suspended."
  (let* ((before (or (conn-state connection)
                     (setf (conn-state connection) (initial-state))))
         (before (cons (living-package (first before)) (rest before))))
    (progv *session-variables* before
      (unwind-protect (funcall function)
        (setf (conn-state connection)
              (loop for variable in *session-variables*
                    for old in before
                    for kept in (conn-state connection)
                    for new = (symbol-value variable)
                    collect (if (eq new old) kept new)))))))

;;; -- one job ----------------------------------------------------------------------

(defun standard-type (type)
  "READER-ERROR for SB-INT:SIMPLE-READER-ERROR, STYLE-WARNING for SB-KERNEL:REDEFINITION-WITH-DEFUN:
such types say how SBCL is made, not what happened."
  (let ((name (symbol-name type)))
    (cond ((not (internal-package-p (symbol-package type))) type)
          ((subtypep type 'style-warning) 'style-warning)
          ((subtypep type 'warning) 'warning)
          ((and (> (length name) 7)
                (string= "SIMPLE-" name :end2 7)
                (find-symbol (subseq name 7) "COMMON-LISP")))
          (t type))))

(defun type-text (type)
  "The name of a condition's type: of CL without prefix, others as the session would write it."
  (let ((type (if (symbolp type) (standard-type type) type)))
    (if (and (symbolp type) (eq (symbol-package type) (find-package "COMMON-LISP")))
        (symbol-name type)
        (text-of type))))

(defun message-of (condition)
  (text-of condition :printer #'princ :cap 10000))

(defparameter *max-warnings* 100)

(defun note-warning (condition)
  (let ((job *job*))
    (when job
      (incf (job-warning-count job))
      (when (<= (job-warning-count job) *max-warnings*)
        (push (object "type" (type-text (type-of condition))
                      "severity" (if (typep condition 'style-warning) "style-warning" "warning")
                      "message" (message-of condition))
              (job-warnings job)))))
  (muffle-warning condition))

(defun call-as-job (job function)
  "Run FUNCTION with the streams, handlers and variables of JOB; true if it came to its end."
  (let* ((*job* job)
         (*connection* (job-connection job))
         (*outer-restarts* (compute-restarts))
         (output (job-stdout job))
         (*standard-output* output)
         (*error-output* (job-stderr job))
         (*trace-output* (job-stderr job))
         (*standard-input* (job-input job))
         (*query-io* (make-two-way-stream (job-input job) output))
         (*debug-io* *query-io*)
         (*terminal-io* *query-io*)
         (sb-ext:*invoke-debugger-hook* 'enter-debugger)
         (sb-ext:*evaluator-mode* :compile))
    (handler-bind ((warning #'note-warning)
                   (sb-ext:compiler-note #'muffle-warning))
      (call-with-state (job-connection job) function))))

(defun limited-capture (job name &optional (cap (conn-max-output (job-connection job))))
  "A stream for what JOB prints as NAME, bounded as the connection says."
  (let ((connection (job-connection job)))
    (make-capture cap
                  (and (conn-spool connection)
                       (lambda () (format nil "~A-~D-~A" (conn-spool connection) (job-id job) name)))
                  (conn-spool-cap connection))))

(defun prepare-job (job &key input interactive debug progress &allow-other-keys)
  (setf (job-stdout job) (limited-capture job "stdout")
        (job-stderr job) (limited-capture job "stderr")
        (job-input job) (make-instance 'client-input :job job :text (or input ""))
        (job-interactive job) interactive
        (job-debug job) debug
        (job-progress job) progress))

(define-operation ("configure" :immediate t) (&key max-output max-value spool spool-cap read-only)
  "The limits of the jobs to come."
  (setf (conn-max-output *connection*) max-output
        (conn-max-value *connection*) max-value
        (conn-spool *connection*) spool
        (conn-spool-cap *connection*) spool-cap
        (conn-read-only *connection*) read-only)
  :null)

(defun apply-operation (job)
  (let ((operation (job-operation job)))
    (when (and (operation-changes operation) (conn-read-only (job-connection job)))
      (error 'mcp:read-only :operator (operation-name operation)))
    (apply (operation-function operation) (job-arguments job))))

(defun perform-job (job)
  "Run the operation. Whatever happens in it, the job knows afterwards how it ended."
  (let ((tag (list job)) (finished nil))
    (setf (job-thread job) sb-thread:*current-thread*)
    (sb-sys:without-interrupts
      (unwind-protect
           (catch tag
             (setf (job-tag job) tag)
             (sb-sys:with-local-interrupts
               (call-as-job job (lambda () (setf (job-data job) (apply-operation job))))
               (setf finished t)))
        (setf (job-tag job) nil)
        (unless (or finished (not (eq (job-status job) :ok)))
          (setf (job-status job) :killed))))))

(defun answer-job (job)
  (let ((connection (job-connection job)))
    (remhash (job-id job) (conn-jobs connection))
    (flush-progress job)
    (ignore-errors (finish-output sb-sys:*stdout*))
    (ignore-errors (finish-output sb-sys:*stderr*))
    (handler-case (send-answer connection job)
      (serious-condition ()             ; there is always an answer
        (send connection "id" (job-id job) "event" "done" "status" "killed")))
    (close-spool (job-stdout job))
    (close-spool (job-stderr job))))

(defun send-answer (connection job)
  (let ((ok (eq (job-status job) :ok)))
    (send connection
          "id" (job-id job)
          "event" "done"
          "status" (string-downcase (job-status job))
          "data" (if ok (job-data job) :null)
          "stdout" (report-unless-empty (job-stdout job))
          "stderr" (report-unless-empty (job-stderr job))
          "warnings" (if (job-warnings job) (reverse (job-warnings job)) :omit)
          "warningCount" (if (job-warnings job) (job-warning-count job) :omit)
          "failure" (if (eq (job-failure job) :null) :omit (job-failure job))
          "definitions" (if (job-definitions job) (reverse (job-definitions job)) :omit)
          "wantedInput" (if (job-wanted-input job) :true :omit)
          "package" (package-text connection))))

(defun package-text (connection)
  (package-name (living-package (or (first (conn-state connection)) *package*))))

;;; Asked only about text that looks unbalanced: a session with reader macros of its own
;;; may read it well.
(define-operation ("standard-reader" :immediate t) (&key)
  (json-boolean (standard-readtable-p (or (second (conn-state *connection*)) *readtable*))))

(defun standard-readtable-p (readtable)
  (let ((standard (load-time-value (copy-readtable nil))))
    (flet ((same-in (function)
             (loop for code from 33 below 127
                   always (or (= code (char-code #\#)) ; dispatches, by a function of its own
                              (eq (funcall function (code-char code) readtable)
                                  (funcall function (code-char code) standard))))))
      (and (same-in #'get-macro-character)
           (same-in (lambda (char table)
                      (ignore-errors (get-dispatch-macro-character #\# char table))))))))

(defun run-job (job)
  (let ((returned nil))
    (unwind-protect (progn (perform-job job)
                           (setf returned t))
      (unless returned
        (step-aside job))               ; the thread ends: the next job must not get it
      (when (or returned (not sb-impl::*exit-in-progress*))
        (answer-job job)))))

(defun step-aside (job)
  "Another thread takes the next jobs: this one ends, or waits for its client."
  (let ((worker (conn-worker (job-connection job))))
    (when (and worker (eq (worker-thread worker) sb-thread:*current-thread*))
      (setf (conn-worker (job-connection job)) nil))))

;;; -- workers -----------------------------------------------------------------------

(defun work (connection worker)
  (unwind-protect
       (loop
         (sb-thread:wait-on-semaphore (worker-ready worker))
         (run-job (or (shiftf (worker-job worker) nil)
                      (return)))        ; woken without a job: the connection has ended
         (unless (eq (conn-worker connection) worker)
           (return)))                   ; it was suspended, and another one serves now
    (detach-worker connection worker)))

(defun detach-worker (connection worker)
  (when (eq (conn-worker connection) worker)
    (setf (conn-worker connection) nil)))

(defun start-worker (connection)
  (let ((worker (make-worker)))
    (setf (worker-thread worker)
          (sb-thread:make-thread #'work :name "mcp evaluation" :arguments (list connection worker))
          (conn-worker connection) worker)))

(defun stop-worker (connection)
  (let ((worker (shiftf (conn-worker connection) nil)))
    (when worker
      (sb-thread:signal-semaphore (worker-ready worker)))))

(defun start-job (connection job)
  (setf (gethash (job-id job) (conn-jobs connection)) job)
  (let ((worker (or (conn-worker connection) (start-worker connection))))
    (setf (worker-job worker) job)
    (sb-thread:signal-semaphore (worker-ready worker))))

;;; -- interrupting ------------------------------------------------------------------

(defun interrupt-job (job)
  "Unwind the job's thread. User code can neither handle it nor catch its tag."
  (sb-thread:interrupt-thread
   (job-thread job)
   (lambda ()
     (when (job-tag job)
       (setf (job-status job) :interrupted
             (job-failure job) (object "frames" (ignore-errors (backtrace-texts job nil))))
       (throw (job-tag job) nil)))))

(define-operation ("interrupt" :immediate t) (&key job force)
  (let* ((job (gethash job (conn-jobs *connection*)))
         (thread (and job (job-thread job))))
    (when thread
      (if force
          (let ((worker (conn-worker *connection*)))
            (when (and worker (eq (worker-thread worker) thread))
              (detach-worker *connection* worker))
            (setf (job-status job) :interrupted)
            (sb-thread:terminate-thread thread))
          (interrupt-job job))))
  :null)

(define-operation ("peek" :immediate t) (&key job (from 0) (limit 4000))
  "What a running job has printed so far, from character FROM on."
  (let ((job (gethash job (conn-jobs *connection*))))
    (if (null job)
        :null
        (let* ((capture (job-stdout job))
               (text (captured-text capture)))
          (object "stdout" (subseq text (min from (length text))
                                   (min (length text) (+ from limit)))
                  "total" (capture-total capture)
                  "stderr" (captured-text (job-stderr job)))))))

;;; -- progress ----------------------------------------------------------------------

(defparameter *progress-interval* (floor internal-time-units-per-second 50)
  "At most fifty reports a second; the last is never lost.")

(defun finite-real-p (value)
  (and (realp value)
       (not (and (floatp value)
                 (or (sb-ext:float-infinity-p value) (sb-ext:float-nan-p value))))))

(defun mcp:progress (done &optional total (message nil))
  "Tell the client how far the evaluation is. Does nothing when nobody asked."
  (check-type done (satisfies finite-real-p))
  (check-type total (or null (satisfies finite-real-p)))
  (let ((job *job*))
    (when (and job (job-progress job))
      (setf (job-done job) done
            (job-total job) total
            (job-note job) (and message (text-of message :printer #'princ :cap 500))
            (job-progress-due job) t)
      (when (>= (- (get-internal-real-time) (job-progress-sent job)) *progress-interval*)
        (flush-progress job))))
  (values))

(defun flush-progress (job)
  (when (job-progress-due job)
    (setf (job-progress-due job) nil
          (job-progress-sent job) (get-internal-real-time))
    (send (job-connection job)
          "id" (job-id job)
          "event" "progress"
          "done" (job-done job)
          "total" (or (job-total job) :omit)
          "message" (or (job-note job) :omit))))
