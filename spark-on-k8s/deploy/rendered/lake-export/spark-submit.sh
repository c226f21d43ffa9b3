#!/bin/sh
# Submits lake-export. Before: kubectl apply -f lake-export/objects.yaml
#   K8S_MASTER=k8s://https://HOST:PORT sh lake-export/spark-submit.sh
set -eu
: "${K8S_MASTER:?is the address of the API server: k8s://https://HOST:PORT}"
folder=$(cd "$(dirname "$0")" && pwd)
exec spark-submit --master "$K8S_MASTER" --deploy-mode cluster \
    --name lake-export \
    --conf spark.driver.cores=1 \
    --conf spark.driver.memory=1g \
    --conf spark.executor.cores=2 \
    --conf spark.executor.instances=2 \
    --conf spark.executor.memory=1g \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=lake-export-driver \
    --conf spark.kubernetes.container.image=waltz-spark:0.1.0 \
    --conf spark.kubernetes.container.image.pullPolicy=IfNotPresent \
    --conf spark.kubernetes.driver.podTemplateContainerName=spark-kubernetes-driver \
    --conf spark.kubernetes.driver.request.cores=500m \
    --conf spark.kubernetes.driverEnv.WALTZ_OPTIONS_FILE=/etc/waltz/options/options.yaml \
    --conf spark.kubernetes.executor.podNamePrefix=lake-export \
    --conf spark.kubernetes.executor.podTemplateContainerName=spark-kubernetes-executor \
    --conf spark.kubernetes.executor.request.cores=500m \
    --conf spark.kubernetes.memoryOverheadFactor=0.4 \
    --conf spark.kubernetes.namespace=spark-jobs \
    --conf 'spark.metrics.conf.*.sink.prometheusServlet.class=org.apache.spark.metrics.sink.PrometheusServlet' \
    --conf 'spark.metrics.conf.*.sink.prometheusServlet.path=/metrics/prometheus' \
    --conf spark.metrics.namespace=lake-export \
    --conf spark.sql.streaming.metricsEnabled=true \
    --conf spark.ui.enabled=true \
    --conf spark.ui.prometheus.enabled=true \
    --conf "spark.kubernetes.driver.podTemplateFile=$folder/driver-pod.yaml" \
    --conf "spark.kubernetes.executor.podTemplateFile=$folder/executor-pod.yaml" \
    "$@" \
    local:///opt/waltz/jobs/lake_export.py \
    --lake \
    /var/lib/waltz-spark/lake \
    --compact \
    --vacuum \
    --keep \
    10
