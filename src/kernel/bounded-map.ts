/** Sets an entry in a map of at most `max` entries. If the map is full, the least recently set entry is dropped. */
export function setBounded<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, max: number): void {
  map.delete(key);
  if (map.size >= max) for (const oldest of map.keys()) if (map.delete(oldest)) break;
  map.set(key, value);
}
