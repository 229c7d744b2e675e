/** The two ways a command speaks: text for a person, JSON for a script. Both neutralised. */
import { neutralise, neutraliseJson } from '../kernel/terminal-text.js';

export const printText = (text: string): void => void process.stdout.write(`${neutralise(text)}\n`);
export const printJson = (value: unknown): void => printJsonText(JSON.stringify(value));
/** Already JSON. */
export const printJsonText = (json: string): void => void process.stdout.write(`${neutraliseJson(json)}\n`);

/** Of the terminal, some of which say 0 when they do not know; scripts get lines as long as they are, up to a bound. */
export const widthOf = ({ isTTY, columns }: Pick<NodeJS.WriteStream, 'isTTY' | 'columns'>): number =>
  isTTY ? columns || 80 : 200;
