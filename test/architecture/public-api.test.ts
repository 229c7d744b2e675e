/**
 * Exported names are an interface: to add or remove one is a decision, with a line in the CHANGELOG.
 */
import { expect, test } from 'vitest';
import * as broker from '../../src/broker/index.js';
import * as worker from '../../src/broker/worker/index.js';
import * as gateway from '../../src/gateway/index.js';
import { Host } from '../../src/host/host.js';
import * as hostler from '../../src/index.js';
import * as testing from '../../src/testing.js';

test('the names of hostler', () => {
  expect(Object.keys(hostler).sort()).toEqual([
    'Connector',
    'ERRORS',
    'HostError',
    'RpcRefusal',
    'createHost',
    'createMemoryLink',
    'hostEventKinds',
    'parseServerSpec',
    'systemClock',
  ]);
});

test('the names of hostler/gateway', () => {
  expect(Object.keys(gateway).sort()).toEqual(['createGateway', 'gatewayCapabilities']);
});

test('the names of hostler/broker', () => {
  expect(Object.keys(broker).sort()).toEqual(['createBroker']);
});

test('the names of hostler/worker', () => {
  expect(Object.keys(worker).sort()).toEqual(['connect', 'connectWorker']);
});

test('the names of hostler/testing', () => {
  expect(Object.keys(testing).sort()).toEqual(['FakeClock', 'randomInt', 'seededRandom']);
});

test('the methods of a host', () => {
  const methods = Object.getOwnPropertyNames(Host.prototype).filter((name) => name !== 'constructor');
  expect(methods.sort()).toEqual([
    ...[
      'accessKey',
      'approvals',
      'approve',
      'attach',
      'cacheStats',
      'call',
      'card',
      'close',
      'detach',
      'discover',
      'endInstance',
      'explain',
      'groups',
      'hasRoles',
      'isAllowed',
      'isUnlistedRole',
      'known',
      'learnTools',
      'lease',
      'list',
      'mayRunTwice',
      'meterCalls',
      'names',
      'on',
      'onKnownChanged',
      'open',
      'pin',
      'read',
      'reconfigure',
      'reload',
      'request',
      'rulesRevision',
      'setAllowlist',
      'showUnrouted',
      'spawn',
    ],
    ...[
      'start',
      'startupListing',
      'status',
      'stderr',
      'stderrLines',
      'stop',
      'subscribe',
      'tools',
      'useKeyedCalls',
      'whenAllListed',
      'whenReady',
      'withBudget',
    ],
  ]);
});
