#!/bin/sh
# start.sh ZOO_CFG: runs one ZooKeeper server as this very process, so that signals reach it.
# The number of the pod (the digits behind the last dash of its name, plus 1) becomes its id in an ensemble.
# ZOOKEEPER_HEAP_MB (default 256) bounds the heap.
set -eu
configuration=$1
directory=$(sed -n 's/^dataDir=//p' "$configuration")
number=${HOSTNAME##*-}
case $number in '' | *[!0-9]*) number=0 ;; esac
# A number with a zero in front would be an octal one, which 08 is not.
while [ "${number#0}" != "$number" ] && [ "$number" != 0 ]; do number=${number#0}; done
printf '%d\n' "$((number + 1))" >"$directory/myid"
exec java "-Xmx${ZOOKEEPER_HEAP_MB:-256}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError \
    -Djava.security.properties=/opt/zookeeper/java.security -Dlog4j2.configurationFile=/opt/zookeeper/log4j2.properties -Dzookeeper.admin.enableServer=false \
    -Dsnappy.disable=true -Djava.io.tmpdir="$directory" \
    -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.server.quorum.QuorumPeerMain "$configuration"
