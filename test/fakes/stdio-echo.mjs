// A Node server that sends one message at the start and exits when its input ends.
process.stdout.write('{"jsonrpc":"2.0","method":"ready"}\n');
process.stdin.resume();
