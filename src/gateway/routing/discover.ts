/** The answer to a modern client's `server/discover`: what the endpoint speaks and can do. */
import { LEGACY_VERSIONS, META, MODERN_VERSION } from '../../session/versions.js';
import type { View } from '../views/view.js';
import { capabilitiesOf, infoOf, instructionsOf } from './offer.js';
import type { ServerFacts } from './server-facts.js';

const supportedVersions = JSON.stringify([MODERN_VERSION, ...LEGACY_VERSIONS]);

/** One result object. Not to be kept: servers come and go, and each principal sees its own. */
export function discoverResult(view: View, facts: ServerFacts): string {
  const instructions = instructionsOf(view);
  const said = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
  return `{"resultType":"complete","supportedVersions":${supportedVersions},"capabilities":${capabilitiesOf(view)}${said},"ttlMs":0,"cacheScope":"private","_meta":{"${META.serverInfo}":${infoOf(view, facts)}}}`;
}
