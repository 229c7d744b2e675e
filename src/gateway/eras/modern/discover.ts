/** The answer to a modern client's `server/discover`: what the endpoint speaks and can do. */

import { LEGACY_VERSIONS } from '../../../session/eras/legacy/revisions.js';
import { META, MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import { capabilitiesOf, infoOf, instructionsOf } from '../../routing/capabilities.js';
import type { ServerInfoCache } from '../../routing/server-info.js';
import type { View } from '../../views/view.js';

const supportedVersions = JSON.stringify([MODERN_VERSION, ...LEGACY_VERSIONS]);

/** One result object. Not to be kept: servers come and go, and each principal sees its own. */
export function discoverResult(view: View, facts: ServerInfoCache): string {
  const instructions = instructionsOf(view);
  const said = instructions === undefined ? '' : `,"instructions":${JSON.stringify(instructions)}`;
  return `{"resultType":"complete","supportedVersions":${supportedVersions},"capabilities":${capabilitiesOf(view)}${said},"ttlMs":0,"cacheScope":"private","_meta":{"${META.serverInfo}":${infoOf(view, facts)}}}`;
}
