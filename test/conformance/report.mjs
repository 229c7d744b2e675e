/** The matrix as a table: on the terminal, and as docs/conformance.md. Pure. */

const count = (part) => (part === undefined ? '-' : `${part.passed} of ${part.total}`);

/** rows: {cell, revision, single, aggregate, unscored}; each part {passed, total} or undefined. */
export function table(rows) {
  const head = ['upstream', 'requirements', 'scored, `/mcp/<server>`', 'without names, `/mcp`', 'unscored'];
  const body = rows.map((row) => [
    row.cell,
    row.revision,
    count(row.single),
    count(row.aggregate),
    row.unscored === undefined ? '-' : count(row.unscored),
  ]);
  return aligned(head, body);
}

function aligned(head, body) {
  const widths = head.map((title, at) => Math.max(title.length, ...body.map((cells) => cells[at].length)));
  const line = (cells) => `| ${cells.map((cell, at) => cell.padEnd(widths[at])).join(' | ')} |`;
  return [line(head), line(widths.map((width) => '-'.repeat(width))), ...body.map(line)].join('\n');
}

/** One row for each reason, with all its cells. */
function reasons(expected) {
  const cells = new Map();
  for (const [cell, { server, client }] of expected) {
    for (const { scenario, check, why } of [...server, ...client]) {
      const name = check === undefined ? scenario : `${scenario}: ${check}`;
      const key = JSON.stringify([name, why]);
      cells.set(key, [...(cells.get(key) ?? []), cell.replace(/^all /, '`/mcp` ')]);
    }
  }
  return [...cells].map(([key, where]) => [where.join(', '), ...JSON.parse(key)]);
}

export function document({ rows, expected, versions, date }) {
  const failing = reasons(expected);
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `# Conformance

Written by \`npm run conformance -- --save\` on ${date}, with ${list.join(', ')}.

The official suite runs against the gateway. Behind \`hostler up\` are two servers. The first one has every tool, prompt and resource that
the scenarios name; the second one makes \`/mcp\` an endpoint of several servers. The first one is reached over each transport and in each
era; each combination of a transport, an era of the server and a protocol revision of the client is a cell. A cell passes when every
scored scenario passes or is listed below as a failure. At \`/mcp/<server>\` no failure may be listed if client and server have the same era.
Warnings count as failures. At \`/mcp\` all names begin with the name of their server, so only scenarios that name no tool and no prompt can
run there. The unscored scenarios that fail are about the tasks extension, which neither the gateway nor the server offers.

Over stdio and HTTP+SSE no field says which call a question or a log line belongs to, and the gateway does not guess: for 30 s
after a call of another client, the question or log line reaches no client. Each scenario opens a session, and each legacy session
is a client. So in these cells the server has \`isolation: "per-client"\`, except where client and server are both modern.

${table(rows)}

In rows named \`client\` the suite is the server behind the gateway. A driver plays the operator and the browser: it runs \`hostler login\`
when the server needs it. In rows named \`sdk-client\` the official client takes the place of Hostler, to compare. Two unscored
authorization scenarios run, those for client credentials. [reports/login-oracle.md](reports/login-oracle.md) compares both clients
at the hostile authorization server of the tests.

## What fails, and why

${failing.length === 0 ? 'Nothing.' : aligned(['where', 'scenario', 'why'], failing)}
`;
}
