;;;; Loads the parts of the bridge in order, for an image that is to be attached:
;;;;     (load "bridge.lisp")
;;;;     (dovetail-lisp:listen-on "/path/of/socket")

(dolist (part '("package" "wire" "output" "jobs" "frames" "debugger" "evaluate" "readonly"
                "symbols" "compiling" "systems" "measure" "look" "serve"
                "tunnel"))
  (load (merge-pathnames (concatenate 'string part ".lisp") (or *load-truename* *default-pathname-defaults*))))
