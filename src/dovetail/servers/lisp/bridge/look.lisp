;;;; What resources show, completion, and which symbols have changed. All of it is immediate: it
;;;; is answered while an evaluation runs, and runs nothing of the user's.

(in-package #:dovetail-lisp)

;;; -- resources -----------------------------------------------------------------------------------

(defun symbol-count (package)
  (let ((count 0))
    (do-external-symbols (symbol package count)
      (declare (ignorable symbol))
      (incf count))))

(define-operation ("packages" :immediate t) (&key)
  (loop for package in (sort (list-all-packages) #'string< :key #'package-name)
        collect (object "name" (package-name package)
                        "nicknames" (package-nicknames package)
                        "external" (symbol-count package))))

(defun external-names (package)
  (let ((names '()))
    (do-external-symbols (symbol package (sort names #'string<))
      (push (symbol-name symbol) names))))

(defun own-names (package)
  "Internal symbols whose home it is and that name something."
  (let ((names '()))
    (do-symbols (symbol package (sort (remove-duplicates names :test #'string=) #'string<))
      (when (and (eq (symbol-package symbol) package)
                 (eq (nth-value 1 (find-symbol (symbol-name symbol) package)) :internal)
                 (symbol-kinds symbol))
        (push (symbol-name symbol) names)))))

(define-operation ("package" :immediate t) (&key package)
  (let ((package (find-package-or-fail package)))
    (object "name" (package-name package)
            "nicknames" (package-nicknames package)
            "documentation" (or (documentation package t) :omit)
            "uses" (mapcar #'package-name (package-use-list package))
            "usedBy" (mapcar #'package-name (package-used-by-list package))
            "external" (external-names package)
            "internal" (if (internal-package-p package) '() (own-names package)))))

(define-operation ("threads" :immediate t) (&key)
  (loop for thread in (sb-thread:list-all-threads)
        collect (object "name" (text-of (or (sb-thread:thread-name thread) "") :printer #'princ)
                        "alive" (json-boolean (sb-thread:thread-alive-p thread))
                        "main" (json-boolean (eq thread (sb-thread:main-thread))))))

(define-operation ("heap" :immediate t) (&key)
  (heap-facts))

(defun symbol-as-written (package name)
  "The symbol of this name, or of the same in capitals, and whether there is one."
  (let ((package (or (find-package package) (find-package (string-upcase package)))))
    (when package
      (loop for text in (list name (string-upcase name))
            do (multiple-value-bind (symbol found) (find-symbol text package)
                 (when found (return (values symbol t))))))))

(define-operation ("find-symbol" :immediate t) (&key package name)
  (multiple-value-bind (symbol found) (symbol-as-written package name)
    (if found
        (object "name" (symbol-name symbol)
                "package" (package-name (or (find-package package)
                                            (find-package (string-upcase package)))))
        :null)))

;;; -- completion ----------------------------------------------------------------------------------

(defparameter *max-completions* 2000)

(defun starts-with-p (prefix name)
  (and (<= (length prefix) (length name))
       (string-equal prefix name :end2 (length prefix))))

(defun initials (name)
  "MVB of MULTIPLE-VALUE-BIND."
  (coerce (loop for char across name
                for before = #\- then char-before
                for char-before = char
                when (and (alphanumericp char) (not (alphanumericp before)))
                  collect char)
          'string))

(defun flex-match-p (letters name)
  "Whether the letters occur in this order, the first of them first."
  (and (plusp (length name))
       (char-equal (char letters 0) (char name 0))
       (loop with start = 0
             for letter across letters
             for found = (position letter name :start start :test #'char-equal)
             always found
             do (setf start (1+ found)))))

(defun matching (text names)
  "Those that start with TEXT; if there are none, those whose words do with its letters; if there
are none either, those that have its letters in order."
  (flet ((those (test)
           (remove-if-not (lambda (name) (funcall test text name)) names)))
    (let ((found (or (those #'starts-with-p)
                     (those (lambda (text name) (starts-with-p text (initials name))))
                     (those #'flex-match-p))))
      (setf found (sort (remove-duplicates found :test #'string=) #'string<))
      (subseq found 0 (min (length found) *max-completions*)))))

(define-operation ("complete-package" :immediate t) (&key text)
  (matching text (loop for package in (list-all-packages)
                       collect (package-name package)
                       append (copy-list (package-nicknames package)))))

(define-operation ("complete-symbol" :immediate t) (&key text package class)
  (let ((package (if package
                     (find-package-or-fail package)
                     (living-package (or (first (conn-state *connection*)) *package*))))
        (names '()))
    (do-symbols (symbol package)
      (when (if class (find-class symbol nil) (symbol-kinds symbol))
        (push (symbol-name symbol) names)))
    (matching text names)))

;;; -- redefinitions -------------------------------------------------------------------------------

(defun facets (symbol)
  "All that a redefinition changes, compared by EQ. A value is not: setting it defines nothing."
  (let ((function (and (fboundp symbol) (fdefinition symbol)))
        (class (find-class symbol nil)))
    (list* (macro-function symbol) function class (boundp symbol)
           (and class (ignore-errors (sb-kernel:classoid-wrapper
                                      (sb-kernel:find-classoid symbol nil))))
           (documentation symbol 'function) (documentation symbol 'variable)
           (and (typep function 'generic-function)
                (copy-list (sb-mop:generic-function-methods function))))))

(defun same-facets-p (old new)
  (and (= (length old) (length new)) (every #'eq old new)))

(define-operation ("watch" :immediate t) (&key symbols)
  "Which of SYMBOLS, pairs of package and name, are other than when they were asked about last.
Those that are not asked about are forgotten."
  (let ((old (conn-watched *connection*)) (new '()) (changed '()))
    (loop for pair in symbols
          for symbol = (apply #'symbol-as-written pair)
          for facets = (and symbol (ignore-errors (facets symbol)))
          for before = (assoc pair old :test #'equal)
          do (push (cons pair facets) new)
             (when (and before (not (same-facets-p (cdr before) facets)))
               (push pair changed)))
    (setf (conn-watched *connection*) new)
    changed))
