;;;; The channel: frames of four length bytes (big endian) and UTF-8 text.
;;;; Requests are one s-expression of keywords, strings, numbers and lists; answers are JSON.

(in-package #:dovetail-lisp)

(defstruct (connection (:conc-name conn-))
  input                                 ; two fd-streams: one shared by two threads
  output                                ; loses messages on newer SBCLs; or a function of a text
  (write-lock (sb-thread:make-mutex :name "channel"))
  (jobs (make-hash-table :synchronized t)) ; request id -> job, running or suspended
  worker                                ; who takes the next job, or nil
  (state nil)                           ; values of *SESSION-VARIABLES* between calls
  (read-only nil)
  (watched '())                          ; symbols a client has subscribed to, as they were
  (max-output 100000) (max-value 20000) ; characters that are sent
  (spool nil) (spool-cap 0))            ; where the rest goes: how file names begin, and how much

;;; -- frames --------------------------------------------------------------------

(defun read-frame (stream)
  "The text of the next frame, or nil when the other side has closed."
  (let ((length 0))
    (loop repeat 4
          do (let ((byte (read-byte stream nil nil)))
               (unless byte (return-from read-frame nil))
               (setf length (+ (ash length 8) byte))))
    (let* ((bytes (make-array length :element-type '(unsigned-byte 8)))
           (end (read-sequence bytes stream)))
      (when (= end length)
        (sb-ext:octets-to-string bytes :external-format :utf-8)))))

(defun send-frame (connection text)
  "Whole or not at all: an interrupt in the middle would spoil the channel."
  (let ((output (conn-output connection)))
    (sb-sys:without-interrupts
      (if (functionp output)
          (funcall output text)
          (sb-thread:with-mutex ((conn-write-lock connection))
            (write-frame text output))))))

(defun write-frame (text stream)
  (let* ((bytes (sb-ext:string-to-octets text :external-format :utf-8))
         (length (length bytes)))
    (loop for shift in '(-24 -16 -8 0)
          do (write-byte (logand 255 (ash length shift)) stream))
    (write-sequence bytes stream)
    (finish-output stream)))

;;; -- JSON ----------------------------------------------------------------------

(defun object (&rest names-and-values)
  "A JSON object; members whose value is :OMIT are left out."
  (cons :object names-and-values))

(defun json-boolean (generalized)
  (if generalized :true :false))

(defun write-json (value stream)
  (etypecase value
    (null (write-string "[]" stream))
    (string (write-json-string value stream))
    (integer (let ((*print-base* 10) (*print-radix* nil)) (princ value stream)))
    (real (format stream "~,6F" value))
    ((eql :true) (write-string "true" stream))
    ((eql :false) (write-string "false" stream))
    ((eql :null) (write-string "null" stream))
    (symbol (write-json-string (symbol-name value) stream))
    (vector (write-json-array (coerce value 'list) stream))
    (cons (if (eq (first value) :object)
              (write-json-object (rest value) stream)
              (write-json-array value stream)))))

(defun write-json-array (items stream)
  (write-char #\[ stream)
  (loop for (item . more) on items
        do (write-json item stream)
           (when more (write-char #\, stream)))
  (write-char #\] stream))

(defun write-json-object (members stream)
  (write-char #\{ stream)
  (loop with first = t
        for (name value) on members by #'cddr
        unless (eq value :omit)
          do (if first (setf first nil) (write-char #\, stream))
             (write-json-string name stream)
             (write-char #\: stream)
             (write-json value stream))
  (write-char #\} stream))

(defun plain-character-p (char)
  (let ((code (char-code char)))
    (and (> code 31) (/= code 34) (/= code 92) (/= code 127)
         (not (<= #xD800 code #xDFFF)))))

(defun write-json-string (string stream)
  "Control characters are escaped; half a surrogate pair has no UTF-8 and becomes U+FFFD."
  (write-char #\" stream)
  (loop with start = 0
        for special = (position-if-not #'plain-character-p string :start start)
        do (write-string string stream :start start :end special)
           (unless special (return))
           (write-escaped (char string special) stream)
           (setf start (1+ special)))
  (write-char #\" stream))

(defun write-escaped (char stream)
  (case char
    (#\" (write-string "\\\"" stream))
    (#\\ (write-string "\\\\" stream))
    (#\Newline (write-string "\\n" stream))
    (t (if (<= #xD800 (char-code char) #xDFFF)
           (write-string "\\ufffd" stream)
           (format stream "\\u~4,'0X" (char-code char))))))

(defun send (connection &rest members)
  "Send one JSON object."
  (send-frame connection
              (with-standard-io-syntax
                (with-output-to-string (stream)
                  (write-json-object members stream)))))
