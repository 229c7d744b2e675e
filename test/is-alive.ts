import { procTable } from '../src/transports/stdio/proc-table.js';

const table = procTable();

/** Whether a process runs. One that ended and that nobody has waited for yet does not. */
export const isAlive = (pid: number): boolean => {
  if (!(pid > 0)) throw new Error(`no process has the id ${pid}`);
  const facts = table.read(pid);
  return facts !== undefined && facts.state !== 'Z';
};
