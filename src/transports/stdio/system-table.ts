/** The way to read the table of processes that works on this system. */
import { existsSync } from 'node:fs';
import { procTable } from './proc-table.js';
import type { ProcessTable } from './process-table.js';
import { psTable } from './ps-table.js';

export const systemTable: ProcessTable = existsSync('/proc/self/stat') ? procTable() : psTable();
