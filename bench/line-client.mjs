/** A minimal client of a stdio server: writes and reads JSON lines, and nothing else. */
import { spawn } from 'node:child_process';

/** `send` takes a message without an id, and calls `done` with its whole answer. */
export function lineClient(command, args) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const waiting = new Map();
  let lastId = 0;
  let rest = '';
  child.stdout.setEncoding('utf8');
  child.stdout.on('data', (chunk) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const answer = JSON.parse(line);
      const done = waiting.get(answer.id);
      waiting.delete(answer.id);
      done?.(answer);
    }
  });
  return {
    send(message, done) {
      const id = ++lastId;
      waiting.set(id, done);
      child.stdin.write(`${JSON.stringify({ ...message, id })}\n`);
    },
    close: () => child.kill(),
  };
}
