;;;; Sessions that only look: forms are let through if all their operators are known not to
;;;; change anything. What is not known is refused, user's functions included.

(in-package #:dovetail-lisp)

(define-condition mcp:read-only (error)
  ((operator :initarg :operator :reader refused-operator)
   (reason :initarg :reason :initform "may change the image" :reader refused-reason))
  (:report (lambda (condition stream)
             (format stream "~S ~A, and this session is attached read-only.~%Hint: attach it for ~
                             reading and writing if that is what you want."
                     (refused-operator condition) (refused-reason condition)))))

(defun name-table (&rest names)
  (let ((table (make-hash-table :test #'eq)))
    (dolist (name names table)
      (setf (gethash name table) t))))

;;; Of COMMON-LISP everything that is not here: the standard is a closed list, and these are all
;;; its operators that change objects, definitions, streams or files, or run what they are given.
(defvar *changing*
  (name-table
   'abort 'add-method 'adjust-array 'allocate-instance 'call-method 'change-class 'check-type
   'clear-input 'clear-output 'close 'clrhash 'compile 'compile-file 'continue 'copy-structure
   'ccase 'ctypecase 'decf 'declaim 'defclass 'defconstant 'defgeneric 'define-compiler-macro
   'define-condition 'define-method-combination 'define-modify-macro 'define-setf-expander
   'define-symbol-macro 'defmacro 'defmethod 'defpackage 'defparameter 'defsetf 'defstruct 'deftype
   'defun 'defvar 'delete 'delete-duplicates 'delete-file 'delete-if 'delete-if-not
   'delete-package 'dribble 'ed 'ensure-directories-exist 'ensure-generic-function 'eval
   'eval-when 'export 'fill 'finish-output 'fmakunbound 'force-output 'gentemp 'import
   'in-package 'incf 'initialize-instance 'inspect 'intern 'invoke-debugger 'invoke-restart
   'invoke-restart-interactively 'listen 'load 'load-logical-pathname-translations
   'load-time-value 'make-instance 'make-instances-obsolete 'make-load-form 'make-package
   'makunbound 'map-into 'mapcan 'mapcon 'merge 'muffle-warning 'nbutlast 'nconc 'nintersection
   'nreconc 'nreverse 'nset-difference 'nset-exclusive-or 'nstring-capitalize 'nstring-downcase
   'nstring-upcase 'nsublis 'nsubst 'nsubst-if 'nsubst-if-not 'nsubstitute 'nsubstitute-if
   'nsubstitute-if-not 'nunion 'open 'peek-char 'pop 'pprint-dispatch 'print-object 'proclaim
   'progv 'provide 'psetf 'psetq 'push 'pushnew 'random 'read 'read-byte 'read-char
   'read-char-no-hang 'read-delimited-list 'read-from-string 'read-line
   'read-preserving-whitespace 'read-sequence 'reinitialize-instance 'remf 'remhash
   'remove-method 'remprop 'rename-file 'rename-package 'replace 'require 'rotatef 'rplaca 'rplacd
   'set 'set-dispatch-macro-character 'set-macro-character 'set-pprint-dispatch
   'set-syntax-from-char 'setf 'setq 'shadow 'shadowing-import 'shared-initialize 'shiftf
   'slot-makunbound 'slot-missing 'slot-unbound 'sort 'stable-sort 'step 'store-value 'throw
   'trace 'unexport 'unintern 'unread-char 'untrace 'unuse-package
   'update-instance-for-different-class 'update-instance-for-redefined-class 'upgraded-array-element-type
   'use-package 'use-value 'vector-pop 'vector-push 'vector-push-extend 'with-open-file
   'with-open-stream 'write-byte 'write-char 'write-sequence 'y-or-n-p 'yes-or-no-p 'macrolet
   'make-broadcast-stream 'make-concatenated-stream 'make-echo-stream 'make-synonym-stream
   'make-two-way-stream 'no-applicable-method 'no-next-method 'compute-applicable-methods
   'compile-file-pathname 'symbol-macrolet))

(defvar *known-elsewhere*
  (name-table 'sb-kernel:dynamic-usage 'sb-thread:list-all-threads 'sb-ext:get-bytes-consed
              'sb-thread:thread-name 'sb-int:quasiquote))

;;; Their first argument is a function, which must be known as well.
(defvar *calling*
  (name-table 'apply 'assoc-if 'assoc-if-not 'complement 'count-if 'count-if-not 'every 'find-if
              'find-if-not 'funcall 'map 'mapc 'mapcar 'maphash 'mapl 'maplist 'member-if
              'member-if-not 'multiple-value-call 'notany 'notevery 'position-if
              'position-if-not 'rassoc-if 'rassoc-if-not 'reduce 'remove-if 'remove-if-not 'some
              'subst-if 'subst-if-not 'substitute-if 'substitute-if-not))

;;; They print; allowed to where the answer shows it, and to no other stream.
(defvar *printing*
  (name-table 'print 'prin1 'princ 'pprint 'write 'write-string 'write-line 'terpri 'fresh-line
              'format))

(defun refuse (operator &optional (reason "may change the image"))
  (error 'mcp:read-only :operator operator :reason reason))

(defun standard-symbol-p (symbol)
  (eq (symbol-package symbol) (load-time-value (find-package "COMMON-LISP"))))

(defun reader-function-p (symbol)
  "Whether SYMBOL only reads slots: a reader of classes, or an accessor of a structure."
  (let ((function (and (fboundp symbol) (not (macro-function symbol)) (fdefinition symbol))))
    (or (and (typep function 'standard-generic-function)
             (let ((methods (sb-mop:generic-function-methods function)))
               (and methods
                    (every (lambda (method) (typep method 'sb-mop:standard-reader-method))
                           methods))))
        (consp (sb-int:info :function :source-transform symbol)))))

(defun known-operator-p (symbol)
  (cond ((standard-symbol-p symbol) (not (gethash symbol *changing*)))
        ((gethash symbol *known-elsewhere*))
        (t (reader-function-p symbol))))

(defun names-operator-p (symbol)
  (or (fboundp symbol) (special-operator-p symbol)))

(defun refuse-changes (form)
  "Let FORM pass, or signal which of its operators was not known."
  (check-form form (local-functions form)))

(defun local-functions (form)
  (let ((names '()))
    (labels ((walk (form)
               (when (consp form)
                 (when (and (member (first form) '(flet labels))
                            (consp (rest form)) (listp (second form)))
                   (loop for definition in (second form)
                         when (consp definition) do (push (first definition) names)))
                 (loop for rest = form then (cdr rest)
                       while (consp rest) do (walk (car rest))))))
      (walk form))
    names))

(defun check-form (form locals)
  (when (consp form)
    (let ((operator (first form)))
      (cond ((eq operator 'quote))
            ((eq operator 'function) (check-function form locals))
            ((and (symbolp operator) (names-operator-p operator)
                  (not (member operator locals)))
             (check-call operator (rest form) locals)
             (check-list (rest form) locals))
            (t (check-list form locals))))))

(defun check-list (list locals)
  (loop for rest = list then (cdr rest)
        while (consp rest) do (check-form (car rest) locals)))

(defun check-call (operator arguments locals)
  (unless (known-operator-p operator)
    (refuse operator))
  (when (gethash operator *calling*)
    (check-function (if (eq operator 'map) (second arguments) (first arguments)) locals))
  (when (gethash operator *printing*)
    (check-printing operator arguments))
  (loop for (key value) on arguments
        when (member key '(:key :test :test-not))
          do (check-function value locals)))

(defun check-function (designator locals)
  "DESIGNATOR must show which function it is: #'NAME, 'NAME or a LAMBDA."
  (let ((name (if (and (consp designator) (member (first designator) '(function quote)))
                  (second designator)
                  designator)))
    (cond ((eq name designator)
           (if (and (consp designator) (eq (first designator) 'lambda))
               (check-list (rest designator) locals)
               (refuse designator "is a function that cannot be known before it is called")))
          ((and (consp name) (eq (first name) 'lambda))
           (check-list (rest name) locals))
          ((member name locals))
          ((not (and (symbolp name) (known-operator-p name)))
           (refuse name)))))

(defun check-printing (operator arguments)
  (if (eq operator 'format)
      (unless (member (first arguments) '(t nil))
        (refuse operator "prints to a stream that may not be yours"))
      (when (or (member :stream arguments)
                (and (rest arguments) (not (eq operator 'write)))
                (and arguments (member operator '(terpri fresh-line))))
        (refuse operator "prints to a stream that may not be yours"))))
