/** The simulation at full count: twenty thousand seeds. */
process.env.SEEDS ??= '20000';
await import('../simulation/host-simulation.test.js');
