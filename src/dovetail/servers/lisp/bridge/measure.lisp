;;;; Profiles, memory, and objects looked into by handle.

(in-package #:dovetail-lisp)

;;; -- profiles ------------------------------------------------------------------------------------

(defun sprof (name &rest arguments)
  (apply #'call-in :sb-sprof "SB-SPROF" name arguments))

(defun profile-report (type)
  (let ((capture (limited-capture *job* "report")))
    (unwind-protect (progn (let ((*standard-output* capture))
                             (sprof "REPORT" :type type :stream capture))
                           (capture-report capture))
      (close-spool capture))))

(define-operation ("profile-code") (&key code package (mode "cpu") (max-samples 40000)
                                         (sample-interval 0.01) (report-type "flat"))
  (call-in-package
   package
   (lambda ()
     (sprof "RESET")
     (let ((values '()) (timing nil))
       (sprof "START-PROFILING" :mode (intern (string-upcase mode) "KEYWORD")
                                :max-samples max-samples :sample-interval sample-interval
                                :threads (list sb-thread:*current-thread*))
       (unwind-protect
            (setf (values values timing) (timing-body (evaluate-text code)))
         (sprof "STOP-PROFILING"))
       (object "values" (value-reports values)
               "timing" timing
               "report" (profile-report (intern (string-upcase report-type) "KEYWORD")))))))

;;; -- memory --------------------------------------------------------------------------------------

(defun heap-facts ()
  (object "used" (sb-kernel:dynamic-usage)
          "size" (sb-ext:dynamic-space-size)
          "gcMs" (milliseconds sb-ext:*gc-run-time*)
          "bytesConsed" (sb-ext:get-bytes-consed)
          "bytesBetweenGcs" (sb-ext:bytes-consed-between-gcs)
          "threads" (length (sb-thread:list-all-threads))))

(define-operation ("memory-report") (&key (verbosity "default") gc-first)
  (when gc-first
    (sb-ext:gc :full t))
  (let ((capture (limited-capture *job* "report")))
    (let ((*standard-output* capture))
      (room (cond ((string= verbosity "minimal") nil)
                  ((string= verbosity "full") t)
                  (t :default))))
    (object "heap" (heap-facts)
            "report" (prog1 (capture-report capture) (close-spool capture)))))

;;; -- objects -------------------------------------------------------------------------------------

(defparameter *max-handles* 1000
  "Objects that are kept for a client to look into, the newest; while they are, they are no garbage.")

(defvar *handles* (make-hash-table :synchronized t))
(defvar *last-handle* 0)

(defun handle-of (object)
  "A number for an object that has parts; :OMIT for one that has none."
  (if (typep object '(or number character null string keyword (eql t)))
      :omit
      (let ((handle (incf *last-handle*)))
        (setf (gethash handle *handles*) object)
        (remhash (- handle *max-handles*) *handles*)
        handle)))

(defun mcp:object (handle)
  "The object that inspect-object showed under this handle."
  (multiple-value-bind (object found) (gethash handle *handles*)
    (unless found
      (error "There is no object ~S: only the newest ~D handles are kept." handle *max-handles*))
    object))

(setf (gethash 'mcp:object *known-elsewhere*) t)

(defparameter *unbound* (make-symbol "unbound"))

(defun part (label value)
  (object "label" (if (stringp label) label (text-of label :cap 200))
          "value" (if (eq value *unbound*) "unbound" (text-of value :cap 200))
          "handle" (if (eq value *unbound*) :omit (handle-of value))))

(defun slot-parts (object)
  (loop for slot in (sb-mop:class-slots (class-of object))
        for name = (sb-mop:slot-definition-name slot)
        collect (cons name (if (slot-boundp object name) (slot-value object name) *unbound*))))

(defun symbol-parts (symbol)
  (remove nil
          (list (cons "name" (symbol-name symbol))
                (cons "package" (symbol-package symbol))
                (when (boundp symbol) (cons "value" (symbol-value symbol)))
                (when (fboundp symbol) (cons "function" (or (macro-function symbol)
                                                            (fdefinition symbol))))
                (when (find-class symbol nil) (cons "class" (find-class symbol)))
                (when (symbol-plist symbol) (cons "plist" (symbol-plist symbol))))))

(defun function-parts (function)
  (list (cons "name" (sb-kernel:%fun-name function))
        (cons "arguments" (introspect "FUNCTION-LAMBDA-LIST" function))
        (cons "type" (sb-kernel:%simple-fun-type (sb-kernel:%fun-fun function)))))

(defun list-parts (list)
  "Of a dotted one the rest, and of a circular one as much as it has."
  (loop with seen = (make-hash-table :test #'eq)
        for index from 0
        for rest = list then (cdr rest)
        while (and (consp rest) (not (gethash rest seen)))
        do (setf (gethash rest seen) t)
        collect (cons index (car rest)) into parts
        finally (return (if rest (append parts (list (cons "rest" rest))) parts))))

(defun parts-of (object)
  "Pairs of a label and a value."
  (typecase object
    ((or number character string) '())
    (cons (list-parts object))
    (symbol (symbol-parts object))
    (array (loop for index below (array-total-size object)
                 collect (cons index (row-major-aref object index))))
    (hash-table (loop for key being the hash-keys of object using (hash-value value)
                      collect (cons key value)))
    (package (list (cons "name" (package-name object))
                   (cons "uses" (package-use-list object))
                   (cons "used by" (package-used-by-list object))
                   (cons "nicknames" (package-nicknames object))))
    (generic-function (append (function-parts object)
                              (list (cons "methods" (sb-mop:generic-function-methods object)))))
    (function (function-parts object))
    ((or standard-object structure-object condition) (slot-parts object))
    (t '())))

(define-operation ("inspect-object") (&key code handle package (start 0) (count 50))
  (call-in-package
   package
   (lambda ()
     (let* ((object (if handle (mcp:object handle) (first (evaluate-text code))))
            (parts (call-evaluator #'parts-of object))
            (total (length parts))
            (start (min start total)))
       (object "handle" (if handle handle (handle-of object))
               "type" (text-of (type-of object) :cap 300)
               "value" (text-of object :cap 2000)
               "total" total
               "start" start
               "parts" (loop for (label . value) in (subseq parts start
                                                            (min total (+ start count)))
                             collect (part label value)))))))
