;;;; What evaluated code prints: all of it is counted, the first part kept, the rest spooled.

(in-package #:dovetail-lisp)

(deftype text () '(simple-array character (*)))

;;; Programs print millions of short strings, so the state is a structure and not slots of
;;; the stream: those cost more than the work.
(defstruct (store (:constructor make-store (cap spool-path spool-cap
                                            &aux (head (make-string (min cap 128))))))
  (head "" :type text)                  ; the first CAP characters, growing as needed
  (kept 0 :type fixnum)
  (cap 0 :type fixnum)
  (total 0 :type fixnum)
  (column 0 :type fixnum)
  (spool-path nil)                      ; or a function that gives it, if it is needed
  (spool-cap 0 :type fixnum)
  (spool nil)
  (spooled 0 :type fixnum)
  (chunk nil)                           ; on its way to the spool
  (filled 0 :type fixnum))

(defparameter *chunk-size* 32768)

(defclass capture (sb-gray:fundamental-character-output-stream)
  ((store :initarg :store :reader capture-store)))

(defun make-capture (cap &optional spool-path (spool-cap 0))
  (make-instance 'capture :store (make-store cap spool-path spool-cap)))

(defun capture-total (capture)
  (store-total (capture-store capture)))

(defun captured-text (capture)
  (let ((store (capture-store capture)))
    (subseq (store-head store) 0 (store-kept store))))

(defun grow-head (store needed)
  (let ((larger (make-string (min (store-cap store)
                                  (max needed (* 2 (length (store-head store))))))))
    (replace larger (store-head store) :end2 (store-kept store))
    (setf (store-head store) larger)))

(defun keep-text (store string start end)
  "Into the head as far as there is room; how many characters that was."
  (declare (type store store) (type text string) (type fixnum start end)
           (optimize (speed 2)))
  (let* ((kept (store-kept store))
         (count (min (- (store-cap store) kept) (- end start)))
         (needed (+ kept count)))
    (declare (type fixnum kept count needed))
    (when (> needed (length (store-head store)))
      (grow-head store needed))
    (replace (store-head store) string :start1 kept :start2 start :end2 (+ start count))
    ;; Last, so that a thread that looks on never sees more than there is.
    (setf (store-kept store) needed)
    count))

(defun open-spool (store)
  "What is in the head is in the file too: it holds the whole text."
  (when (functionp (store-spool-path store))
    (setf (store-spool-path store) (funcall (store-spool-path store))))
  (let ((spool (open (store-spool-path store) :direction :output :if-exists :supersede
                                              :external-format '(:utf-8 :replacement #\?))))
    (write-string (store-head store) spool :end (store-kept store))
    (setf (store-spooled store) (store-kept store)
          (store-chunk store) (make-string *chunk-size*)
          (store-spool store) spool)))

(defun flush-chunk (store)
  (write-string (store-chunk store) (store-spool store) :end (store-filled store))
  (setf (store-filled store) 0))

(defun spool-text (store string start end)
  "What does not fit goes to a file, up to the cap of that."
  (declare (type store store) (type text string) (type fixnum start end)
           (optimize (speed 2)))
  (unless (store-spool store)
    (open-spool store))
  (let* ((chunk (store-chunk store))
         (end (min end (+ start (the fixnum (- (store-spool-cap store) (store-spooled store)))))))
    (declare (type text chunk) (type fixnum end))
    (loop while (< start end)
          do (let* ((filled (store-filled store))
                    (count (min (- end start) (- (length chunk) filled))))
               (declare (type fixnum filled count))
               (replace chunk string :start1 filled :start2 start :end2 (+ start count))
               (setf (store-filled store) (+ filled count)
                     start (+ start count))
               (incf (store-spooled store) count)
               (when (= (store-filled store) (length chunk))
                 (flush-chunk store))))))

(defun store-text (store string start end)
  (declare (type store store) (type text string) (type fixnum start end)
           (optimize (speed 2)))
  (let ((new-line (position #\Newline string :from-end t :start start :end end)))
    (if new-line
        (setf (store-column store) (- end (the fixnum new-line) 1))
        (incf (store-column store) (- end start))))
  (incf (store-total store) (- end start))
  (when (< (store-kept store) (store-cap store))
    (incf start (the fixnum (keep-text store string start end))))
  (when (and (< start end)
             (store-spool-path store)
             (< (store-spooled store) (store-spool-cap store)))
    (spool-text store string start end)))

(defmethod sb-gray:stream-write-string ((stream capture) string &optional (start 0) end)
  (store-text (capture-store stream)
              (if (typep string 'text) string (coerce string 'text))
              start (or end (length string)))
  string)

(defun store-char (store char)
  "The same for one character, where there is room for it already."
  (declare (type store store) (type character char) (optimize (speed 2)))
  (let ((kept (store-kept store)) (filled (store-filled store)) (chunk (store-chunk store)))
    (cond ((< kept (length (store-head store)))
           (setf (schar (store-head store) kept) char
                 (store-kept store) (1+ kept)))
          ((and chunk
                (< (1+ filled) (length (the text chunk)))
                (< (store-spooled store) (store-spool-cap store)))
           (setf (schar (the text chunk) filled) char
                 (store-filled store) (1+ filled))
           (incf (store-spooled store)))
          (t (return-from store-char
               (store-text store (make-string 1 :initial-element char) 0 1))))
    (incf (store-total store))
    (if (char= char #\Newline)
        (setf (store-column store) 0)
        (incf (store-column store)))))

(defmethod sb-gray:stream-write-char ((stream capture) char)
  (store-char (capture-store stream) char)
  char)

(defmethod sb-gray:stream-line-column ((stream capture))
  (store-column (capture-store stream)))

(defmethod sb-gray:stream-finish-output ((stream capture))
  nil)

(defun capture-report (capture)
  "As JSON: the text kept, how much there was, how much of it the spool file holds."
  (let ((store (capture-store capture)))
    (when (store-spool store)
      (flush-chunk store)
      (finish-output (store-spool store)))
    (object "text" (captured-text capture)
            "total" (store-total store)
            "spooled" (store-spooled store)
            "spool" (if (plusp (store-spooled store)) (store-spool-path store) :omit))))

(defun report-unless-empty (capture)
  (if (plusp (capture-total capture)) (capture-report capture) :omit))

(defun close-spool (capture)
  (let ((store (capture-store capture)))
    (when (store-spool store)
      (close (store-spool store))
      (setf (store-spool store) nil
            (store-spool-path store) nil))))

;;; -- printing ------------------------------------------------------------------

(defmacro with-print-limits (&body body)
  `(let ((*print-length* 100) (*print-level* 10) (*print-circle* t)
         (*print-pretty* t) (*print-readably* nil) (*print-right-margin* 100))
     ,@body))

(defun safe-class-name (value)
  (handler-case (string (class-name (class-of value)))
    (serious-condition () "OBJECT")))

(defun print-captured (value capture &optional (printer #'prin1))
  "Print VALUE; a print method that fails leaves a word about it instead."
  (handler-case (with-print-limits (funcall printer value capture))
    (serious-condition (condition)
      (format capture "#<~A: error printing object: ~A>"
              (safe-class-name value) (type-of condition))))
  capture)

(defun text-of (value &key (printer #'prin1) (cap 1000))
  "VALUE as a string of at most CAP characters, whatever its print method does."
  (let ((capture (make-capture cap)))
    (print-captured value capture printer)
    (if (> (capture-total capture) cap)
        (concatenate 'string (captured-text capture) "…")
        (captured-text capture))))
