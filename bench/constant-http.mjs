/**
 * An HTTP server that answers every POST with the bytes of one file: the upper limit for lists that are answered from prepared
 * bytes. Prints `listening <url>`; exits when stdin ends.
 */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import process from 'node:process';

const bytes = readFileSync(process.argv[2]);
const headers = { 'content-type': 'application/json', 'content-length': bytes.length };
const server = createServer((request, response) => {
  request.on('data', () => {});
  request.on('end', () => response.writeHead(200, headers).end(bytes));
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => process.stdout.write(`listening http://127.0.0.1:${server.address().port}/mcp\n`));
process.stdin.resume().once('end', () => process.exit(0));
