;;;; The channel inside a connection of Swank or Slynk: requests come as calls of TUNNEL-IN, and
;;;; a call of TUNNEL-OUT waits for what there is to say. Both run in threads of that server.

(in-package #:dovetail-lisp)

(defstruct tunnel
  connection                            ; ours
  carrier                               ; theirs, as SWANK::*EMACS-CONNECTION* has it
  (frames '()) (sent 0)                 ; what is to be said, and how much of the first one was
  (lock (sb-thread:make-mutex :name "tunnel"))
  (ready (sb-thread:make-semaphore :name "frame"))
  (pieces '())                          ; of a request that has not come to its end
  (closed nil))

(defvar *tunnels* (make-hash-table :test #'equal :synchronized t))

;;; A packet of Swank has less than 16 MB, of characters that may take four bytes each.
(defparameter *piece-size* 500000)

(defun carrier-symbol (package name)
  (find-symbol name (find-package package)))

(defun open-tunnel (key package)
  "A session whose frames are carried by PACKAGE, which is SWANK or SLYNK."
  (let* ((tunnel (make-tunnel :carrier (symbol-value (carrier-symbol package "*EMACS-CONNECTION*"))))
         (connection (make-connection :output (lambda (text) (put-frame tunnel text)))))
    (setf (tunnel-connection tunnel) connection
          (gethash key *tunnels*) tunnel)
    (pushnew 'close-tunnels (symbol-value (carrier-symbol package "*CONNECTION-CLOSED-HOOK*")))
    (say-hello connection)
    "ok"))

(defun close-tunnels (carrier)
  "Their connection has ended: so have the sessions in it."
  (loop for key being the hash-keys of *tunnels* using (hash-value tunnel)
        when (eq (tunnel-carrier tunnel) carrier)
          do (remhash key *tunnels*)
             (setf (tunnel-closed tunnel) t)
             (stop-worker (tunnel-connection tunnel))
             (sb-thread:signal-semaphore (tunnel-ready tunnel))))

(defun put-frame (tunnel text)
  (sb-thread:with-mutex ((tunnel-lock tunnel))
    (setf (tunnel-frames tunnel) (append (tunnel-frames tunnel) (list text))))
  (sb-thread:signal-semaphore (tunnel-ready tunnel)))

(defun next-piece (tunnel)
  "Up to *PIECE-SIZE* characters of the oldest frame, and whether they are its last."
  (sb-thread:with-mutex ((tunnel-lock tunnel))
    (let* ((text (first (tunnel-frames tunnel)))
           (start (tunnel-sent tunnel))
           (end (min (length text) (+ start *piece-size*)))
           (is-last (= end (length text))))
      (cond (is-last (pop (tunnel-frames tunnel))
                     (setf (tunnel-sent tunnel) 0))
            (t (setf (tunnel-sent tunnel) end)
               (sb-thread:signal-semaphore (tunnel-ready tunnel))))
      (list (coerce (subseq text start end) 'text) is-last))))

(defun tunnel-out (key seconds)
  "The next piece of a frame, or nil if there is none for so long. It waits not much longer
than that for a client that is gone."
  (let ((tunnel (gethash key *tunnels*)))
    (when (and tunnel
               (sb-thread:wait-on-semaphore (tunnel-ready tunnel) :timeout seconds)
               (not (tunnel-closed tunnel)))
      (next-piece tunnel))))

(defun tunnel-in (key text is-last)
  "A request, or a piece of one."
  (let ((tunnel (gethash key *tunnels*)))
    (when tunnel
      (push text (tunnel-pieces tunnel))
      (when is-last
        (let ((whole (apply #'concatenate 'string (reverse (shiftf (tunnel-pieces tunnel) '())))))
          (handle-text (tunnel-connection tunnel) whole)))))
  nil)
