;;;; The loop that reads the channel, for a child process and for an attached image.

(in-package #:dovetail-lisp)

(defun handle-request (connection &key id operation arguments)
  (let ((found (gethash operation *operations*)))
    (cond ((null found)
           (send connection "id" id "event" "done" "status" "unknown"))
          ((operation-immediate found)
           (answer-at-once connection id found arguments))
          (t
           (let ((job (make-job :id id :connection connection
                                :operation found :arguments arguments)))
             (apply #'prepare-job job arguments)
             (start-job connection job))))))

(defun answer-at-once (connection id operation arguments)
  (handler-case (apply (operation-function operation) arguments)
    (serious-condition (condition)
      (send connection "id" id "event" "done" "status" "error"
                       "failure" (object "type" (type-text (type-of condition))
                                         "message" (message-of condition))))
    (:no-error (data)
      (send connection "id" id "event" "done" "status" "ok" "data" data))))

(defun handle-text (connection text)
  "A request as it was sent: read, and answered or begun."
  (let ((*connection* connection))
    (with-standard-io-syntax
      (let ((*read-eval* nil) (*package* (find-package "DOVETAIL-LISP")))
        (apply #'handle-request connection (read-from-string text))))))

(defun read-requests (connection)
  (loop for text = (handler-case (read-frame (conn-input connection))
                     (stream-error () nil))
        while text
        do (handle-text connection text)))

(defun say-hello (connection)
  (send connection "event" "hello"
                   "version" (lisp-implementation-version)
                   "pid" (sb-unix:unix-getpid)
                   "heap" (sb-ext:dynamic-space-size)))

(defun say-goodbye (connection)
  "The process exits: what it had printed, and which requests it will not answer although they
have begun. Any other can be done by the next process."
  (let* ((jobs (loop for job being the hash-values of (conn-jobs connection) collect job))
         (running (find-if-not #'job-suspended jobs)))
    (send connection "event" "exiting"
                     "begun" (mapcar #'job-id jobs)
                     "stdout" (if running (report-unless-empty (job-stdout running)) :omit)
                     "stderr" (if running (report-unless-empty (job-stderr running)) :omit))))

(defun channel-stream (descriptor direction)
  (sb-sys:make-fd-stream descriptor :input (eq direction :input) :output (eq direction :output)
                                    :element-type '(unsigned-byte 8) :buffering :full
                                    :name "mcp channel"))

;;; -- a child of the server -----------------------------------------------------------------

#+linux
(defun call-prctl (option argument)
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "prctl" (function sb-alien:int sb-alien:int sb-alien:unsigned-long
                                            sb-alien:unsigned-long sb-alien:unsigned-long
                                            sb-alien:unsigned-long))
   option argument 0 0 0))

(defun limit-resource (resource value)
  (sb-alien:with-alien ((limits (array sb-alien:unsigned-long 2)))
    (setf (sb-alien:deref limits 0) value
          (sb-alien:deref limits 1) value)
    (sb-alien:alien-funcall
     (sb-alien:extern-alien "setrlimit" (function sb-alien:int sb-alien:int
                                                  (* (array sb-alien:unsigned-long 2))))
     resource (sb-alien:addr limits))))

(defun confine (&key address-space no-new-privileges)
  "Numbers are those of Linux: <sys/prctl.h>, <sys/resource.h>."
  (declare (ignorable address-space no-new-privileges))
  #+linux (progn
            (call-prctl 1 9)            ; PR_SET_PDEATHSIG: SIGKILL when the server is gone
            (limit-resource 4 0)        ; RLIMIT_CORE
            (when address-space (limit-resource 9 address-space))
            (when no-new-privileges (call-prctl 38 1))))

(defun end-background-thread (condition hook)
  "An error in a thread that no evaluation waits for: say so and end that thread."
  (declare (ignore hook))
  (ignore-errors
   (format sb-sys:*stderr* "Error in ~A: ~A: ~A~%" sb-thread:*current-thread*
           (type-of condition) condition)
   (finish-output sb-sys:*stderr*))
  (sb-thread:abort-thread))

(defun serve-descriptor (descriptor &rest limits)
  "Serve the channel until it is closed, then end the process: no Lisp outlives its server."
  (apply #'confine limits)
  (setf sb-ext:*invoke-debugger-hook* #'end-background-thread)
  (let ((connection (make-connection :input (channel-stream descriptor :input)
                                     :output (channel-stream descriptor :output))))
    (push (lambda () (ignore-errors (say-goodbye connection))) sb-ext:*exit-hooks*)
    (say-hello connection)
    (unwind-protect (read-requests connection)
      (unless sb-impl::*exit-in-progress*
        (ignore-errors (say-goodbye connection)) ; or the channel is closed
        (sb-ext:exit :code 0 :abort t)))))

;;; -- an image that somebody else started -----------------------------------------------------

(defun call-sockets (name &rest arguments)
  (apply #'call-in :sb-bsd-sockets "SB-BSD-SOCKETS" name arguments))

(defun serve-client (socket)
  (let* ((descriptor (call-sockets "SOCKET-FILE-DESCRIPTOR" socket))
         (connection (make-connection :input (channel-stream descriptor :input)
                                      :output (channel-stream descriptor :output))))
    (unwind-protect
         (handler-case (progn (say-hello connection)
                              (read-requests connection))
           (stream-error () nil))       ; the client is gone
      (stop-worker connection)
      (ignore-errors (call-sockets "SOCKET-CLOSE" socket)))))

(defun accept-clients (listener)
  (loop
    (let ((socket (call-sockets "SOCKET-ACCEPT" listener)))
      (when socket
        (sb-thread:make-thread #'serve-client :name "mcp client" :arguments (list socket))))))

(defun call-umask (mask)
  (sb-alien:alien-funcall
   (sb-alien:extern-alien "umask" (function sb-alien:unsigned-int sb-alien:unsigned-int)) mask))

(defun listen-on (path)
  "Let MCP sessions attach to this image through the unix socket PATH, which only its owner may use.
Returns the thread that listens; ending it ends the listening."
  (let* ((path (namestring (merge-pathnames path)))
         (listener (progn
                     (require :sb-bsd-sockets)
                     (make-instance (find-symbol "LOCAL-SOCKET" "SB-BSD-SOCKETS")
                                    :type :stream))))
    (when (eq (sb-impl::native-file-kind path) :special)
      (delete-file path))               ; a socket that somebody left
    (let ((mask (call-umask #o177)))
      (unwind-protect (call-sockets "SOCKET-BIND" listener path)
        (call-umask mask)))
    (call-sockets "SOCKET-LISTEN" listener 5)
    (sb-thread:make-thread #'accept-clients :name "mcp listener" :arguments (list listener))))
