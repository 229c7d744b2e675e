/** `hostler broker`: a command of earlier versions. It says what to use instead. */
import { type Command, usageError } from './command.js';

const ignored = 'has no effect';

export const broker: Command = {
  name: 'broker',
  usage: '',
  options: { 'config=': ignored, 'host=': ignored, 'port=': ignored, 'data-dir=': ignored, json: ignored },
  positionals: [0, 0],
  async run() {
    throw usageError(
      broker,
      'hostler up with "broker": {} serves workers itself, and several hosts use NATS',
      'docs/broker.md shows both',
    );
  },
};
