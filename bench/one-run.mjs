/**
 * Measures one contestant at one concurrency, in a separate process. Prints {callsPerSecond, cpuUsPerCall}.
 * Arguments: transport, contestant, concurrency, seconds, and the URL for HTTP.
 */
import process from 'node:process';
import { checkAnswer, contestants, echoStdio } from './contestants.mjs';

const [transport, name, concurrencyText, secondsText, url] = process.argv.slice(2);
const concurrency = Number(concurrencyText);
const durationMs = Number(secondsText) * 1_000;
const { call, close } = await contestants[transport][name](transport === 'http' ? { url } : echoStdio);

async function load(forMs) {
  const startedMs = performance.now();
  const untilMs = startedMs + forMs;
  let calls = 0;
  const caller = async () => {
    while (performance.now() < untilMs) {
      await call();
      calls++;
    }
  };
  const cpu = process.cpuUsage();
  await Promise.all(Array.from({ length: concurrency }, caller));
  const { user, system } = process.cpuUsage(cpu);
  return { callsPerSecond: (calls * 1_000) / (performance.now() - startedMs), cpuUsPerCall: (user + system) / calls };
}

checkAnswer(await call());
await load(durationMs / 2);
console.log(JSON.stringify(await load(durationMs)));
await close();
process.exit(0);
