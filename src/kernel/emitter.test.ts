import { expect, test } from 'vitest';
import { Emitter } from './emitter.js';

test('every listener gets every event, also when error reports fail', () => {
  const emitter = new Emitter<{ moved: number }>((error) => {
    throw error;
  });
  const heard: number[] = [];
  emitter.on('moved', () => {
    throw new Error('listener');
  });
  emitter.on('moved', (by) => heard.push(by));
  emitter.emit('moved', 1);
  expect(heard).toEqual([1]);
});

test('every listener gets every event, also when one of them throws or is removed', () => {
  const errors: unknown[] = [];
  const emitter = new Emitter<{ moved: number }>((error) => errors.push(error));
  const heard: string[] = [];
  const off = emitter.on('moved', (by) => {
    heard.push(`a${by}`);
    off();
  });
  emitter.on('moved', () => {
    throw new Error('listener');
  });
  emitter.on('moved', (by) => heard.push(`b${by}`));
  emitter.emit('moved', 1);
  emitter.emit('moved', 2);
  expect(heard).toEqual(['a1', 'b1', 'b2']);
  expect(errors).toHaveLength(2);
  expect(emitter.listenerCount('moved')).toBe(2);
});
