// A server in Node that announces itself and leaves when its input ends.
process.stdout.write('{"jsonrpc":"2.0","method":"ready"}\n');
process.stdin.resume();
