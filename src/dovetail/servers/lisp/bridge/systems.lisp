;;;; ASDF systems and files: finding, loading, testing them.

(in-package #:dovetail-lisp)

;;; ASDF is loaded when it is first needed: that takes a tenth of a second, and longer where a
;;; newer ASDF than SBCL's is installed, which SBCL's then compiles.
(defun asdf (name &rest arguments)
  (apply #'call-in :asdf "ASDF" name arguments))

(defun asdf-variable (name)
  (find-symbol name "ASDF"))

(defun current-folder ()
  (if (equal *default-pathname-defaults* #P"")
      (sb-ext:native-pathname (concatenate 'string (sb-unix:posix-getcwd) "/"))
      (truename *default-pathname-defaults*)))

(defun call-with-systems (function)
  "Call FUNCTION where ASDF also finds the systems of the folder this Lisp runs in."
  (asdf "ASDF-VERSION")
  (let ((registry (asdf-variable "*CENTRAL-REGISTRY*"))
        (*compile-verbose* nil) (*compile-print* nil) (*load-verbose* nil))
    (progv (list registry) (list (cons (current-folder) (symbol-value registry)))
      (funcall function))))

(defun find-asdf-system (name)
  "ASDF says itself what is missing, and of what."
  (asdf "FIND-SYSTEM" (string-downcase name)))

(defun note-definition (operator name code)
  "For the journal: CODE, as a whole, does this again."
  (push (object "operator" operator "name" name "package" (package-name *package*)
                "start" 0 "end" (length code))
        (job-definitions *job*)))

(defun load-one-system (name force)
  (call-with-systems
   (lambda ()
     (let ((system (find-asdf-system name)))
       (call-evaluator #'asdf "LOAD-SYSTEM" system :force (if force t nil))
       (values (asdf "COMPONENT-NAME" system) (asdf "COMPONENT-VERSION" system))))))

(define-operation ("load-system" :changes t) (&key system force code)
  (multiple-value-bind (names timing)
      (timing-body (multiple-value-list (load-one-system system force)))
    (destructuring-bind (name version) names
      (note-definition "LOAD-SYSTEM" name code)
      (object "system" name
              "version" (or version :omit)
              "timing" timing))))

(defun temporary-fasl (job)
  "In the folder of the spool files, which is the server's own, or beside the source."
  (let ((spool (conn-spool (job-connection job))))
    (and spool (format nil "~A-~D-load.fasl" spool (job-id job)))))

(defun compile-and-load (path)
  (let* ((*compile-verbose* nil)
         (*compile-print* nil)
         (wanted (temporary-fasl *job*))
         (fasl (if wanted
                   (compile-file path :output-file wanted)
                   (compile-file path))))
    (unless fasl
      (error "~A was not compiled: see what the compiler printed." path))
    (unwind-protect (load fasl)
      (when wanted (ignore-errors (delete-file fasl))))))

(define-operation ("load-file" :changes t) (&key path compile package code)
  (let ((path (probe-file (merge-pathnames (sb-ext:native-pathname path) (current-folder)))))
    (unless path
      (error "There is no such file in ~A." (namestring (current-folder))))
    (call-in-package
     package
     (lambda ()
       (let ((timing (nth-value 1 (timing-body
                                    (if compile
                                        (call-evaluator #'compile-and-load path)
                                        (call-evaluator #'load path))))))
         (note-definition "LOAD" (sb-ext:native-namestring path) code)
         (object "path" (sb-ext:native-namestring path)
                 "compiled" (json-boolean compile)
                 "timing" timing))))))

;;; -- which there are ---------------------------------------------------------------------------

(defparameter *max-systems* 1000)

(defun registry-table ()
  "What ASDF has found in the places its configuration names: name -> file."
  (asdf "ENSURE-SOURCE-REGISTRY")
  (let ((variable (find-symbol "*SOURCE-REGISTRY*" "ASDF/SOURCE-REGISTRY")))
    (and variable (symbol-value variable))))

(defun local-systems ()
  "Names and files: of the source registry, of the current folder, and those loaded already."
  (let ((found (make-hash-table :test #'equal))
        (registry (registry-table)))
    (when (hash-table-p registry)
      (loop for name being the hash-keys of registry using (hash-value file)
            do (setf (gethash name found) file)))
    (dolist (file (directory (merge-pathnames "*.asd" (current-folder))))
      (setf (gethash (pathname-name file) found) file))
    (dolist (name (asdf "REGISTERED-SYSTEMS"))
      (let ((file (ignore-errors (asdf "SYSTEM-SOURCE-FILE" name))))
        (when (or file (not (gethash name found)))
          (setf (gethash name found) file))))
    (sort (loop for name being the hash-keys of found using (hash-value file)
                collect (cons name file))
          #'string< :key #'car)))

(defun file-text (file)
  (if file (sb-ext:native-namestring file) :omit))

(defun loaded-names ()
  (asdf "ALREADY-LOADED-SYSTEMS"))

(define-operation ("list-local-systems") (&key pattern)
  (call-with-systems
   (lambda ()
     (let* ((loaded (loaded-names))
            (systems (loop for (name . file) in (local-systems)
                           when (or (null pattern) (search pattern name :test #'char-equal))
                             collect (object "name" name
                                             "file" (file-text file)
                                             "loaded" (json-boolean
                                                       (member name loaded :test #'string=))))))
       (object "total" (length systems)
               "systems" (subseq systems 0 (min (length systems) *max-systems*)))))))

(defun dependency-text (dependency)
  (if (stringp dependency)
      dependency
      (string-downcase (text-of dependency :printer #'princ))))

(defun source-files (component)
  (let ((children (ignore-errors (asdf "COMPONENT-CHILDREN" component))))
    (if children
        (loop for child in children append (source-files child))
        (let ((path (ignore-errors (asdf "COMPONENT-PATHNAME" component))))
          (and path (pathname-name path) (list (sb-ext:native-namestring path)))))))

(define-operation ("describe-system") (&key system)
  (call-with-systems
   (lambda ()
     (let* ((system (find-asdf-system system))
            (name (asdf "COMPONENT-NAME" system)))
       (flet ((fact (reader)
                (let ((value (ignore-errors (asdf reader system))))
                  (if value (text-of value :printer #'princ) :omit))))
         (object "name" name
                 "version" (fact "COMPONENT-VERSION")
                 "description" (fact "SYSTEM-DESCRIPTION")
                 "author" (fact "SYSTEM-AUTHOR")
                 "license" (fact "SYSTEM-LICENSE")
                 "file" (file-text (asdf "SYSTEM-SOURCE-FILE" system))
                 "loaded" (json-boolean (member name (loaded-names) :test #'string=))
                 "dependsOn" (mapcar #'dependency-text (asdf "SYSTEM-DEPENDS-ON" system))
                 "files" (source-files system)))))))

;;; -- tests -------------------------------------------------------------------------------------

(define-operation ("run-tests" :changes t) (&key system code)
  "TEST-OP of the system, or CODE. An error in it is a failure of the tests."
  (let* ((values '())
         (timing (nth-value 1 (timing-body
                                (setf values
                                      (if code
                                          (evaluate-text code)
                                          (call-with-systems
                                           (lambda ()
                                             (multiple-value-list
                                              (call-evaluator #'asdf "TEST-SYSTEM"
                                                              (find-asdf-system system)))))))))))
    (object "values" (value-reports values)
            "passed" (json-boolean (or (null code) (first values)))
            "timing" timing)))
