#!/bin/sh
# Ways in which a server gets processes of its own between and beside us. First argument: which one.
# Prints one message when everything has been started, then serves until its input ends.
here=$(dirname "$0")
ready='{"jsonrpc":"2.0","method":"ready"}'
serve() { echo "$ready"; cat >/dev/null; }
case $1 in
  chain)      # npx: a shell that runs a shell that runs node
    sh -c "sh -c 'node \"$here/stdio-echo.mjs\"; true'; true" ;;
  stubborn)   # the same, and the innermost ignores everything
    sh -c "sh -c 'perl \"$here/stdio-server.pl\" --say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"method\\\":\\\"ready\\\"}\\\\n\" --ignore-eof --ignore-term; true'; true" ;;
  background) # sh -c 'a & b'
    sleep 1000 & serve ;;
  double)     # a double fork that stays in the group
    (sh -c 'sleep 1000 & ') & wait; serve ;;
  nohup)
    nohup sleep 1000 >/dev/null 2>&1 & serve ;;
  setsid)
    setsid sleep 1000 & 
    until [ "$(ps -o sid= -p $! | tr -d ' ')" = "$!" ]; do :; done
    serve ;;
  wiped)      # leaves the group, and its environment behind
    setsid env -i sleep 1000 &
    until [ "$(ps -o comm= -p $!)" = sleep ]; do :; done
    serve ;;
  daemon)     # leaves the group, its parent, and its streams
    setsid sh -c 'sleep 1000 </dev/null >/dev/null 2>&1 & ' ; serve ;;
esac
