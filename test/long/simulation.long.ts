/** Both simulations at full count: twenty thousand seeds each. */
process.env.SEEDS ??= '20000';
process.env.RECOVERY_SEEDS ??= '20000';
await import('../simulation/host-simulation.test.js');
await import('../simulation/recovery-simulation.test.js');
