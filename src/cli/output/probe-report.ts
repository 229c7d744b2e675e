/** Formats the report of `hostler probe` as text. All text of the server is neutralised. */
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { StopReport } from '../../transports/stdio/child.js';
import type { Channel, Era } from '../../wire/channel.js';
import { formatSize } from './print.js';

/** Object that `--json` prints. */
export interface ProbeReport {
  readonly server: string;
  readonly transport: Channel['kind'];
  readonly era: Era;
  readonly version: string;
  readonly serverInfo: Readonly<Record<string, unknown>> | null;
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly instructions: string | null;
  readonly startMs: number;
  readonly tools: ReadonlyArray<{ readonly name: string; readonly bytes: number }>;
  /** Reason for each tool that was left out because of invalid header annotations. */
  readonly droppedTools: Readonly<Record<string, string>>;
  readonly resources: number;
  readonly resourceTemplates: number;
  readonly prompts: number;
  /** Reason for each list method that failed. */
  readonly failures: Readonly<Record<string, string>>;
  readonly junkLines: number;
  readonly stopMs: number;
  readonly stop: StopReport | null;
}

const nameCharsMax = 64;
const lineCharsMax = 300;
const toolsShownMax = 200;

export function renderReport(report: ProbeReport): string {
  const { tools, serverInfo } = report;
  const bytes = tools.reduce((sum, tool) => sum + tool.bytes, 0);
  const who = [serverInfo?.name, serverInfo?.version].filter((part) => typeof part === 'string').join(' ');
  const width = tools.reduce((widest, tool) => Math.max(widest, Math.min(tool.name.length, nameCharsMax)), 0);
  const rows: [string, string][] = [
    ['server', show(who === '' ? report.server : `${report.server} (${who})`)],
    ['speaks', `${report.version}, ${report.era} era, over ${report.transport}`],
    ['ready', `in ${report.startMs} ms`],
    ['offers', show(Object.keys(report.capabilities).sort().join(', ')) || 'nothing'],
    ['tools', `${tools.length}, ${formatSize(bytes)}`],
    ...tools
      .slice(0, toolsShownMax)
      .map(({ name, bytes: own }): [string, string] => ['', `${show(name).padEnd(width)}  ${formatSize(own)}`]),
    ...(tools.length > toolsShownMax ? [['', `and ${tools.length - toolsShownMax} more`] as [string, string]] : []),
    ...Object.entries(report.droppedTools).map(([name, why]): [string, string] => [
      '',
      `${show(name)} left out: ${show(why)}`,
    ]),
    ['also', `${report.resources} resources, ${report.resourceTemplates} templates, ${report.prompts} prompts`],
    ...Object.entries(report.failures).map(([list, why]): [string, string] => ['failed', `${list}: ${show(why)}`]),
    ...(report.junkLines > 0
      ? [['noise', `${report.junkLines} lines on stdout were not JSON-RPC`] as [string, string]]
      : []),
    ['stopped', `in ${report.stopMs} ms${stopText(report.stop)}`],
  ];
  return rows.map(([label, text]) => `${label.padEnd(8)}${text}`.trimEnd()).join('\n');
}

function stopText(stop: StopReport | null): string {
  if (!stop) return '';
  const how = stop.signal === undefined ? `exit ${stop.exitCode ?? '?'}` : stop.signal;
  const left = stop.left > 0 ? `, ${stop.left} processes of its group could not be killed` : '';
  const escaped = stop.escaped > 0 ? `, ${stop.escaped} processes left its group and still run` : '';
  return `, ${how}${left}${escaped || left ? escaped : ', nothing left'}`;
}

const show = (text: string): string => neutraliseLine(text, lineCharsMax);
