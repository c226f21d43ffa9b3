"""One description of a Spark application on Kubernetes, rendered for the three ways to submit it.

This package runs from the checkout and is in no wheel.

`application` is the description, `pods` and `objects` are what all ways share (pod templates; account,
network, volumes), `spark_submit`, `kubeflow` and `apache` are the ways, `all_files` is all of it.
`python -m render`, in the folder `deploy`, writes the files. Pure, but for the command.
"""
