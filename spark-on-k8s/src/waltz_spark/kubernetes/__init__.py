"""One description of a Spark application on Kubernetes, rendered for the three ways to submit it.

``application`` is the description, ``pods`` and ``objects`` are what all ways share (pod templates; account,
network, volumes), ``spark_submit``, ``kubeflow`` and ``apache`` are the ways. ``python -m
waltz_spark.kubernetes`` writes them as files. Pure, but for the command.
"""
