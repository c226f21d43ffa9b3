"""`waltz console`: a web application that shows a cluster. `run` starts it, `app` has the pages, `collector`
observes the cluster, `safety` decides who may ask; `assets` is what a browser loads."""
