/** The public names of hostler/gateway. */
export {
  createGateway,
  type Gateway,
  type GatewayOptions,
  type GatewaySettings,
  gatewayCapabilities,
} from './gateway.js';
