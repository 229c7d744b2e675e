import { expect, test } from 'vitest';
import { crashLine } from './stderr-ring.js';

/** As the programs wrote them; only the folders are shortened. */
const outputs: Readonly<Record<string, readonly [said: string, chosen: string]>> = {
  'Node, an error with properties': [
    `file:///srv/a.mjs:1
function connect(){ throw Object.assign(new TypeError('API key is missing'), {code:'E_KEY', nested:{a:1}}) }
                                        ^

TypeError: API key is missing
    at connect (file:///srv/a.mjs:1:41)
    at file:///srv/a.mjs:2:1
    at ModuleJob.run (node:internal/modules/esm/module_job:325:25)
    at async ModuleLoader.import (node:internal/modules/esm/loader:606:24)
    at async asyncRunEntryPointWithESMLoader (node:internal/modules/run_main:117:5) {
  code: 'E_KEY',
  nested: { a: 1 }
}

Node.js v20.20.2
`,
    'TypeError: API key is missing at connect (file:///srv/a.mjs:1:41)',
  ],
  'Node, a missing module': [
    `node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module './not-there.js'
Require stack:
- /srv/b.cjs
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27)
    at require (node:internal/modules/helpers:182:18)
    at Object.<anonymous> (/srv/b.cjs:1:1)
    at Module._compile (node:internal/modules/cjs/loader:1521:14) {
  code: 'MODULE_NOT_FOUND',
  requireStack: [ '/srv/b.cjs' ]
}

Node.js v20.20.2
`,
    "Error: Cannot find module './not-there.js' at Object.<anonymous> (/srv/b.cjs:1:1)",
  ],
  'Node, a message of two lines': [
    `file:///srv/c.mjs:1
async function main(){ throw new Error('first line\\nsecond line') } main();
                             ^

Error: first line
second line
    at main (file:///srv/c.mjs:1:30)
    at file:///srv/c.mjs:1:69
    at ModuleJob.run (node:internal/modules/esm/module_job:325:25)

Node.js v20.20.2
`,
    'Error: first line at main (file:///srv/c.mjs:1:30)',
  ],
  'Node, a text that was thrown': [
    `
node:internal/modules/run_main:123
    triggerUncaughtException(
    ^
boom as text
(Use \`node --trace-uncaught ...\` to show where the exception was thrown)

Node.js v20.20.2
`,
    'boom as text',
  ],
  'Node, an error of syntax': [
    `/srv/e.cjs:1
const x = ;
          ^

SyntaxError: Unexpected token ';'
    at wrapSafe (node:internal/modules/cjs/loader:1464:18)
    at Module._compile (node:internal/modules/cjs/loader:1495:20)
    at node:internal/main/run_main_module:28:49

Node.js v20.20.2
`,
    "SyntaxError: Unexpected token ';' at wrapSafe (node:internal/modules/cjs/loader:1464:18)",
  ],
  'Node, an error with a cause': [
    `Error: outer
    at file:///srv/f.mjs:1:56
    at ModuleJob.run (node:internal/modules/esm/module_job:325:25) {
  [cause]: Error: inner
      at file:///srv/f.mjs:1:13
      at ModuleJob.run (node:internal/modules/esm/module_job:325:25)
}

Node.js v20.20.2
`,
    'Error: outer at file:///srv/f.mjs:1:56',
  ],
  'an error that was logged earlier': [
    `starting
Error: handled earlier
    at file:///srv/g.mjs:1:42
    at ModuleJob.run (node:internal/modules/esm/module_job:325:25)
listening
fatal: port 80 is taken
`,
    'fatal: port 80 is taken',
  ],
  Java: [
    `Exception in thread "main" java.lang.IllegalStateException: no key
\tat com.example.Server.main(Server.java:12)
`,
    'Exception in thread "main" java.lang.IllegalStateException: no key at com.example.Server.main(Server.java:12)',
  ],
  'Python, an exception with a cause': [
    `Traceback (most recent call last):
  File "/srv/a.py", line 5, in main
    connect()
  File "/srv/a.py", line 2, in connect
    raise ValueError("API key is missing")
ValueError: API key is missing

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/a.py", line 8, in <module>
    main()
  File "/srv/a.py", line 7, in main
    raise RuntimeError("cannot start") from error
RuntimeError: cannot start
`,
    'RuntimeError: cannot start (File "/srv/a.py", line 7, in main)',
  ],
  'Python, a missing module': [
    `Traceback (most recent call last):
  File "/srv/b.py", line 1, in <module>
    import not_there
ModuleNotFoundError: No module named 'not_there'
`,
    'ModuleNotFoundError: No module named \'not_there\' (File "/srv/b.py", line 1, in <module>)',
  ],
  'Python, a message of several lines': [
    `Traceback (most recent call last):
  File "/srv/d.py", line 9, in <module>
    Settings()
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.8/v/missing
`,
    'pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings api_key Field required ' +
      '[type=missing, input_value={}, input_type=dict] (File "/srv/d.py", line 9, in <module>)',
  ],
  'Python, an error of syntax': [
    `  File "/srv/c.py", line 1
    def x(:
          ^
SyntaxError: invalid syntax
`,
    'SyntaxError: invalid syntax (File "/srv/c.py", line 1)',
  ],
  'Python, a traceback that was logged earlier': [
    `Traceback (most recent call last):
  File "/srv/a.py", line 2, in connect
    raise ValueError("first try")
ValueError: first try
2026-11-17 20:40:01 INFO trying again
2026-11-17 20:40:02 ERROR gave up
`,
    '2026-11-17 20:40:02 ERROR gave up',
  ],
  'Go, a panic': [
    `panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.connect(...)
\t/srv/main.go:8
main.main()
\t/srv/main.go:12 +0x1d
exit status 2
`,
    'panic: runtime error: index out of range [5] with length 3 at main.connect(...) /srv/main.go:8',
  ],
  'Go, a panic that was raised by another one': [
    `panic: no key
	panic: while closing

goroutine 1 [running]:
panic({0x45d4a0?, 0x4b6c60?})
\t/usr/local/go/src/runtime/panic.go:770 +0x132
main.main()
\t/srv/main.go:5 +0x2c
`,
    'panic: no key at main.main() /srv/main.go:5',
  ],
  'Go, a deadlock': [
    `fatal error: all goroutines are asleep - deadlock!

goroutine 1 [chan receive]:
main.main()
\t/srv/main.go:5 +0x2c
exit status 2
`,
    'fatal error: all goroutines are asleep - deadlock! at main.main() /srv/main.go:5',
  ],
  'Rust, a panic': [
    `thread 'main' (15268) panicked at src/main.rs:1:101:
API_KEY is not set
note: run with \`RUST_BACKTRACE=1\` environment variable to display a backtrace
`,
    "thread 'main' (15268) panicked at src/main.rs:1:101: API_KEY is not set",
  ],
  'Rust, a panic with its backtrace': [
    `thread 'main' panicked at src/main.rs:1:101:
API_KEY is not set
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/panicking.rs:689:5
   1: core::panicking::panic_fmt
             at /rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/core/src/panicking.rs:80:14
   5: r::main
note: Some details are omitted, run with \`RUST_BACKTRACE=full\` for a verbose backtrace.
`,
    "thread 'main' panicked at src/main.rs:1:101: API_KEY is not set",
  ],
  'Rust before 1.73': [
    `thread 'main' panicked at 'API_KEY is not set', src/main.rs:1:101
note: run with \`RUST_BACKTRACE=1\` environment variable to display a backtrace
`,
    "thread 'main' panicked at 'API_KEY is not set', src/main.rs:1:101",
  ],
  'npx, a missing package': [
    `npm error code E404
npm error 404 Not Found - GET https://packages.example/no-such - Not found
npm error 404
npm error A complete log of this run can be found in: /srv/npm/_logs/2026-11-17T20_40_01_000Z-debug-0.log
`,
    'npm error 404 Not Found - GET https://packages.example/no-such - Not found',
  ],
  'a plain line': ['listening\nno key given\n\n', 'no key given'],
  'nothing but the version of Node': ['\nNode.js v20.20.2\n', ''],
  nothing: ['', ''],
};

test.each(Object.entries(outputs))('E18 the line with the cause: %s', (_name, [said, chosen]) => {
  expect(crashLine(said, 500)).toBe(chosen);
});

test('E18 the line is cut to the limit', () => {
  expect(crashLine(`Error: ${'x'.repeat(100)}\n    at a (b.js:1:1)\n`, 20)).toBe(`Error: ${'x'.repeat(13)}…`);
});

test('E18 text that is designed to be slow takes linear time in its lines', () => {
  const hostile = [
    '    at x {',
    'Traceback (most recent call last):',
    "thread '' panicked at ",
    'panic: ',
    '  File "',
    '}',
  ];
  const text = Array.from({ length: 16 * 1024 }, (_, i) => hostile[i % hostile.length]).join('\n');
  expect(crashLine(text.slice(0, 64 * 1024), 500).length).toBeLessThanOrEqual(501);
});
