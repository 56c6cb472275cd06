#!/bin/sh
# Starts haybale in its container: the service, or the command that the arguments name.
set -eu

# What haybale writes to /data belongs to the owner of the folder, who can then read, copy and change it outside of the
# container. In a rootless engine, root is the user who has started it.
if [ "$(id -u)" = 0 ]; then
    owner=$(stat -c %u:%g .)
    read -r inside outside count < /proc/self/uid_map
    if [ "$owner" != 0:0 ]; then
        exec setpriv --reuid "${owner%:*}" --regid "${owner#*:}" --clear-groups -- "$0" "$@"
    elif [ "$outside" = 0 ]; then
        echo "/data belongs to root, so haybale runs as root in this container; give the folder to another user" >&2
    fi
fi

if [ $# -gt 0 ]; then
    exec haybale "$@"
fi
# HAYBALE_PROXY and HAYBALE_OPTIONS may be several words.
# shellcheck disable=SC2086
for network in $HAYBALE_PROXY; do
    set -- "$@" --proxy "$network"
done
# shellcheck disable=SC2086
exec haybale serve engine --host 0.0.0.0 --port "$HAYBALE_PORT" --users users.json --judgements judgements.sqlite \
    --access-log - --allow-host "$HAYBALE_HOST" "$@" \
    ${HAYBALE_USER_HEADER:+--user-header "$HAYBALE_USER_HEADER"} \
    ${HAYBALE_NEW_USERS:+--new-users "$HAYBALE_NEW_USERS"} $HAYBALE_OPTIONS
