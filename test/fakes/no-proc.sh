#!/bin/sh
# Runs a command in a mount namespace that is like macOS to it: /proc is empty, and `ps` answers all the same.
# Run it as: unshare --mount sh no-proc.sh FOLDER COMMAND...
# FOLDER is empty at first. It gets proc/ (the real table, for the test to check what is left), ps.log (a line for each `ps` that
# was run) and may be given ps.delay (how many seconds each `ps` takes that asks for other processes than the one that runs it).
set -e
folder=$1
shift
mkdir -p "$folder/proc"
cp "$(command -v ps)" "$folder/ps.real"
cat > "$folder/ps" <<END
#!/bin/sh
echo "\$*" >> "$folder/ps.log"
case " \$* " in
  *" -p \$PPID "*) ;;
  *) [ ! -e "$folder/ps.delay" ] || sleep "\$(cat "$folder/ps.delay")" ;;
esac
exec unshare --mount sh -c 'mount --bind "\$0/proc" /proc && exec "\$0/ps.real" "\$@"' "$folder" "\$@"
END
chmod 755 "$folder/ps"
mount --bind /proc "$folder/proc"
mount --bind "$folder/ps" "$(command -v ps)"
mount -t tmpfs none /proc
export TEST_PROC_FOLDER="$folder/proc"
exec "$@"
