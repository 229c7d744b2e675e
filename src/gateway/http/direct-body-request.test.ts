import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { eventually } from '../../../test/eventually.js';
import { DirectBodyRequest } from './parse-post.js';

/** The response of a server to these bytes, up to its end. Each of `parts` is sent when the part before it has arrived. */
async function serve(parts: readonly string[], listener: RequestListener<typeof DirectBodyRequest>, isCutOff = false) {
  const server = createServer({ IncomingMessage: DirectBodyRequest, requireHostHeader: false }, listener);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  let text = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  for (const part of parts) await new Promise((resolve) => socket.write(part, resolve));
  if (isCutOff) socket.destroy();
  await once(socket, 'close');
  server.close();
  await once(server, 'close');
  return text;
}

const head = (bytes: number, more = '') =>
  `POST /mcp?x=1 HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: ${bytes}\r\n${more}\r\n`;

test('the consumer of the body gets its pieces and its end, and no later disconnect', async () => {
  const told: string[] = [];
  const answer = await serve([`${head(6)}abc`, 'def'], (request, response) => {
    request.on('data', () => told.push('flowed'));
    request.takeBody({
      piece: (bytes) => told.push(bytes.toString()),
      end: () => {
        told.push('end');
        response.end('done');
      },
      left: () => told.push('left'),
    });
  });
  expect(answer).toContain('done');
  expect([told.slice(0, -1).join(''), told.at(-1)]).toEqual(['abcdef', 'end']);
});

test('a sender that disconnects before the end of the body is reported once, and no end is reported', async () => {
  const told: string[] = [];
  let isOver = () => {};
  const over = new Promise<void>((resolve) => {
    isOver = resolve;
  });
  const served = serve(
    [`${head(6)}abc`],
    (request) =>
      request.takeBody({
        piece: () => told.push('piece'),
        end: () => told.push('end'),
        left: () => {
          told.push('left');
          isOver();
        },
      }),
    true,
  );
  await Promise.all([served, over]);
  expect(told).toEqual(['piece', 'left']);
});

test('two requests in one piece are both answered, in their order', async () => {
  const first = head(3).replace('Connection: close\r\n', '');
  const answer = await serve([`${first}one${head(3)}two`], (request, response) => {
    let body = '';
    request.takeBody({
      piece: (bytes) => (body += bytes.toString()),
      end: () => response.end(`<${body}>`),
      left: () => {},
    });
  });
  expect(answer.match(/<...>/g)).toEqual(['<one>', '<two>']);
});

test('a body without a consumer is a stream', async () => {
  const answer = await serve([`${head(3)}abc`], async (request, response) => {
    let body = '';
    for await (const piece of request) body += piece;
    response.end(`<${body}> ${request.readableEnded}`);
  });
  expect(answer).toContain('<abc> true');
});

test('a client that expects 100 gets it', async () => {
  const answer = await serve([head(3, 'Expect: 100-continue\r\nX-Own: 1\r\n'), 'abc'], (request, response) => {
    expect(request.headers).toMatchObject({ expect: '100-continue', 'x-own': '1' });
    request.takeBody({ piece: () => {}, end: () => response.end('done'), left: () => {} });
  });
  expect(answer).toMatch(/^HTTP\/1.1 100 Continue[\s\S]*done/);
});

test('X19 a request that was answered before the end of its body is released from memory when the body ends', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const held: WeakRef<object>[] = [];
  // A connection that Node closes as idle would release the request too.
  const server = createServer({ IncomingMessage: DirectBodyRequest, keepAliveTimeout: 0 }, (request, response) => {
    held.push(new WeakRef(request));
    request.takeBody({ piece: () => response.end('done'), end: () => {}, left: () => {} });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\nabc');
  await once(socket, 'data');
  socket.write('def');
  await eventually(
    'the request is collected',
    () => {
      collect();
      return held.every((each) => each.deref() === undefined);
    },
    10_000,
  );
  expect([held.length, socket.closed, socket.readableEnded]).toEqual([1, false, false]);
  socket.destroy();
  server.close();
  await once(server, 'close');
});
