/** `hostler doctor`: what keeps Hostler from working, and what to do about it. Exits with 1 when something is broken. */
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { Words } from './command.js';
import { examine, type Finding } from './doctor-checks.js';
import { EXIT } from './exit-codes.js';
import { findConfig } from './find-config.js';
import { printJson, printText } from './print.js';
import { dataDirOf } from './running.js';

const lineChars = 400;

export async function doctor(words: Words): Promise<number> {
  const findings = await examine({
    config: () => findConfig({ given: words.text('config'), env: process.env, cwd: process.cwd() }),
    dataDir: dataDirOf(words),
    env: process.env,
  });
  const isBroken = findings.some(({ level }) => level === 'broken');
  if (words.has('json')) printJson({ ok: !isBroken, findings });
  else printText([...findings.flatMap(lines), '', isBroken ? 'something is broken' : 'all is well'].join('\n'));
  return isBroken ? EXIT.failed : EXIT.done;
}

function lines({ check, level, what, hint }: Finding): string[] {
  const first = `${level.padEnd(6)}  ${check}: ${neutraliseLine(what, lineChars)}`;
  return hint === undefined ? [first] : [first, `        ${neutraliseLine(hint, lineChars)}`];
}
