# Runs a command as an ordinary user who can reach a Python that lives in root's home. Called in a mount namespace
# of its own: as_nobody.sh PYTHON_PREFIX COMMAND...
set -e
prefix=$1
shift
home=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
mount --make-rprivate /
case "$prefix" in
"$home"/*)
    stage=$(mktemp -d)
    mount --bind "$prefix" "$stage"
    mount -t tmpfs -o mode=755 none "$home"
    mkdir -p "$prefix"
    mount --bind "$stage" "$prefix"
    umount "$stage"
    rmdir "$stage"
    ;;
esac
cd /
exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs "$@"
