/** One version of a tool becomes the one that later lists are compared with. */

import { approvalEvent } from '../catalog/schema-events.js';
import type { HostParts } from './host-parts.js';

export function approveTool(
  { pins, clock, events, catalogue }: Pick<HostParts, 'pins' | 'clock' | 'events' | 'catalogue'>,
  server: string,
  tool: string,
  hash: string,
): void {
  const before = pins.recordOf(server, tool);
  pins.approve(server, tool, hash, clock.date());
  const event = approvalEvent(tool, before, pins.recordOf(server, tool));
  if (event) events.tell(server, event);
  catalogue.judgeAnew(server);
}
