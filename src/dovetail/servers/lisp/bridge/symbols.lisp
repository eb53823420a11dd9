;;;; Looking at symbols, macros, classes and methods.

(in-package #:dovetail-lisp)

(defun split-name (text)
  "Package part (or nil) and name part of a symbol as people write it, in the case of the reader."
  (let* ((colon (position #\: text))
         (name (if colon (string-left-trim ":" (subseq text colon)) text)))
    (flet ((cased (part)
             (if (and (> (length part) 1) (char= #\| (char part 0)))
                 (string-trim "|" part)
                 (string-upcase part))))
      (values (cond ((null colon) nil)
                    ((zerop colon) "KEYWORD")
                    (t (cased (subseq text 0 colon))))
              (cased name)))))

(defun find-named-symbol (text)
  "The symbol TEXT names in the current package; it is not made if there is none."
  (multiple-value-bind (package name) (split-name (string-trim " " text))
    (let ((package (if package (find-package-or-fail package) *package*)))
      (multiple-value-bind (symbol found) (find-symbol name package)
        (if found
            symbol
            (error "There is no symbol ~A in package ~A." name (package-name package)))))))

(defun full-name (symbol)
  (let ((package (symbol-package symbol)))
    (if package
        (format nil "~A~A~A" (package-name package)
                (if (eq :external (nth-value 1 (find-symbol (symbol-name symbol) package)))
                    ":" "::")
                (symbol-name symbol))
        (format nil "#:~A" (symbol-name symbol)))))

(defun function-kind (symbol)
  (cond ((special-operator-p symbol) "special-operator")
        ((macro-function symbol) "macro")
        ((not (fboundp symbol)) nil)
        ((typep (fdefinition symbol) 'generic-function) "generic-function")
        (t "function")))

(defun variable-kind (symbol)
  (cond ((constantp symbol) "constant")
        ((or (boundp symbol) (eq (sb-int:info :variable :kind symbol) :special)) "variable")))

(defun symbol-kinds (symbol)
  (remove nil (list (function-kind symbol) (variable-kind symbol)
                    (when (find-class symbol nil) "class"))))

(defun introspect (name &rest arguments)
  (apply #'call-in :sb-introspect "SB-INTROSPECT" name arguments))

(defun arglist-text (symbol)
  (let ((function (or (macro-function symbol) (and (fboundp symbol) (fdefinition symbol)))))
    (if (and function (not (special-operator-p symbol)))
        (text-of (introspect "FUNCTION-LAMBDA-LIST" function) :printer #'print-on-one-line)
        :omit)))

(defun source-place (source)
  "File and form of a definition source, as far as it has them."
  (let ((file (introspect "DEFINITION-SOURCE-PATHNAME" source))
        (offset (introspect "DEFINITION-SOURCE-CHARACTER-OFFSET" source)))
    (if file
        (object "file" (namestring file) "offset" (or offset :omit))
        :omit)))

(defun symbol-source (symbol)
  (loop for kind in '(:function :generic-function :macro :variable :class :structure)
        for sources = (ignore-errors (introspect "FIND-DEFINITION-SOURCES-BY-NAME" symbol kind))
        for place = (if sources (source-place (first sources)) :omit)
        unless (eq place :omit) return place
        finally (return :omit)))

(defun documentations (symbol)
  (loop for kind in '(function variable type structure setf)
        for text = (ignore-errors (documentation symbol kind))
        when text collect (object "kind" (string-downcase kind) "text" text)))

(define-operation ("describe-symbol") (&key name package)
  (call-in-package
   package
   (lambda ()
     (let ((symbol (find-named-symbol name)))
       (object "name" (full-name symbol)
               "kinds" (symbol-kinds symbol)
               "arglist" (arglist-text symbol)
               "value" (if (boundp symbol) (text-of (symbol-value symbol)) :omit)
               "documentation" (documentations symbol)
               "source" (symbol-source symbol))))))

;;; -- searching -------------------------------------------------------------------------------

(defparameter *max-found* 200)

(define-operation ("apropos-search") (&key pattern package type)
  (let* ((symbols (if package
                      (apropos-list pattern (find-package-or-fail package))
                      (apropos-list pattern)))
         (known (loop for symbol in (remove-duplicates symbols)
                      for kinds = (symbol-kinds symbol)
                      when (if type (member type kinds :test #'string=) kinds)
                        collect (cons (full-name symbol) kinds)))
         (sorted (sort known #'string< :key #'car)))
    (object "total" (length sorted)
            "symbols" (loop for (name . kinds) in sorted
                            repeat *max-found*
                            collect (object "name" name "kinds" kinds)))))

(defun references (symbol &rest finders)
  "Who uses SYMBOL, by the cross references of the compiler."
  (let ((found '()))
    (dolist (finder finders)
      (loop for (name . source) in (introspect finder symbol)
            do (pushnew (list (text-of name :printer #'print-on-one-line)
                              (source-place source))
                        found :key #'first :test #'equal)))
    (object "references" (loop for (name place) in (sort found #'string< :key #'first)
                               collect (object "name" name "source" place)))))

(define-operation ("who-calls") (&key name package)
  (call-in-package package
                   (lambda ()
                     (references (find-named-symbol name) "WHO-CALLS" "WHO-MACROEXPANDS"))))

(define-operation ("who-references") (&key name package)
  (call-in-package package
                   (lambda ()
                     (references (find-named-symbol name)
                                 "WHO-REFERENCES" "WHO-BINDS" "WHO-SETS"))))

;;; -- macros ------------------------------------------------------------------------------------

(defun print-code (form stream)
  "Code is written out: labels for shared parts are of no use in it."
  (let ((*print-circle* nil) (*print-length* 500) (*print-level* 50))
    (prin1 form stream)))

(define-operation ("macroexpand-form") (&key form full package)
  (call-in-package
   package
   (lambda ()
     (let ((form (read-from-string form)))
       (check-permitted form)
       (object "original" (text-of form :cap 20000 :printer #'print-code)
               "expanded" (text-of (call-evaluator
                                    (lambda ()
                                      (if full
                                          (call-in :sb-cltl2 "SB-CLTL2" "MACROEXPAND-ALL" form)
                                          (macroexpand-1 form))))
                                   :cap 20000 :printer #'print-code))))))

;;; -- classes -----------------------------------------------------------------------------------

(defun named-class (name)
  (let ((class (find-class (find-named-symbol name))))
    (unless (sb-mop:class-finalized-p class)
      (ignore-errors (sb-mop:finalize-inheritance class)))
    class))

(defun class-names (classes)
  (loop for class in classes collect (text-of (class-name class))))

(defun slot-report (slot direct)
  (object "name" (text-of (sb-mop:slot-definition-name slot))
          "direct" (json-boolean direct)
          "type" (text-of (sb-mop:slot-definition-type slot))
          "initargs" (mapcar #'text-of (sb-mop:slot-definition-initargs slot))
          "allocation" (string-downcase (text-of (sb-mop:slot-definition-allocation slot)
                                                 :printer #'princ))))

(define-operation ("class-info") (&key class package)
  (call-in-package
   package
   (lambda ()
     (let* ((class (named-class class))
            (direct (mapcar #'sb-mop:slot-definition-name (sb-mop:class-direct-slots class)))
            (slots (if (sb-mop:class-finalized-p class)
                       (sb-mop:class-slots class)
                       (sb-mop:class-direct-slots class))))
       (object "name" (full-name (class-name class))
               "metaclass" (text-of (class-name (class-of class)))
               "superclasses" (class-names (sb-mop:class-direct-superclasses class))
               "subclasses" (class-names (sb-mop:class-direct-subclasses class))
               "precedence" (if (sb-mop:class-finalized-p class)
                                (class-names (sb-mop:class-precedence-list class))
                                '())
               "slots" (loop for slot in slots
                             collect (slot-report slot
                                                  (member (sb-mop:slot-definition-name slot)
                                                          direct)))
               "documentation" (or (documentation class t) :omit))))))

(defun method-report (method)
  (object "generic" (text-of (sb-mop:generic-function-name
                              (sb-mop:method-generic-function method)))
          "qualifiers" (mapcar #'text-of (method-qualifiers method))
          "specializers" (loop for specializer in (sb-mop:method-specializers method)
                               collect (if (typep specializer 'class)
                                           (text-of (class-name specializer))
                                           (text-of specializer)))))

(define-operation ("find-methods") (&key class package include-inherited)
  (call-in-package
   package
   (lambda ()
     (let* ((class (named-class class))
            (general (mapcar #'find-class '(t standard-object structure-object)))
            (classes (if (and include-inherited (sb-mop:class-finalized-p class))
                         (set-difference (sb-mop:class-precedence-list class) general)
                         (list class))))
       (object "methods"
               (loop for one in (reverse classes)
                     append (mapcar #'method-report
                                    (remove nil (sb-mop:specializer-direct-methods one)
                                            :key #'sb-mop:method-generic-function))))))))
