import test from 'ava';
import { proxyFor } from '../../src/sources/proxy.js';

const PROXIES = { httpProxy: 'http://plain:3128', httpsProxy: 'user:secret@secure:3129' };

const exempt = (url: string, noProxy: string) => proxyFor(new URL(url), { ...PROXIES, noProxy }) === undefined;

test('each scheme has a proxy of its own, and its password is not shown', (t) => {
  t.like(proxyFor(new URL('http://hub.test/'), PROXIES), { variable: 'HTTP_PROXY', shown: 'http://plain:3128' });
  t.like(proxyFor(new URL('https://hub.test/'), PROXIES), {
    variable: 'HTTPS_PROXY',
    url: 'http://user:secret@secure:3129',
    shown: 'http://secure:3129',
  });
  t.is(proxyFor(new URL('https://hub.test/'), { httpProxy: 'http://plain:3128' }), undefined);
  t.is(proxyFor(new URL('https://hub.test/'), { httpsProxy: '' }), undefined);
  t.is(proxyFor(new URL('https://hub.test/'), undefined), undefined);
});

test('NO_PROXY exempts hosts, their subdomains, ports, addresses and blocks', (t) => {
  t.true(exempt('https://hub.test/', 'other.test, hub.test'));
  t.true(exempt('https://cdn.hub.test/', 'hub.test'));
  t.true(exempt('https://cdn.hub.test/', '.hub.test'));
  t.true(exempt('https://cdn.hub.test/', '*.HUB.test'));
  t.false(exempt('https://nohub.test/', 'hub.test'));
  t.true(exempt('https://hub.test/', 'hub.test:443'));
  t.false(exempt('https://hub.test:8443/', 'hub.test:443'));
  t.true(exempt('http://10.1.2.3/', '10.0.0.0/8'));
  t.false(exempt('http://11.1.2.3/', '10.0.0.0/8'));
  t.false(exempt('http://hub.test/', '10.0.0.0/8'));
  t.false(exempt('http://10.1.2.3/', '10.0.0.0/99'));
  t.true(exempt('http://10.1.2.3/', '10.1.2.3'));
  t.true(exempt('http://[fd00::1]/', 'fd00::1'));
  t.true(exempt('http://[fd00::1]:8080/', '[fd00::1]:8080'));
  t.true(exempt('http://[fd00::1]/', 'fd00::/8'));
  t.true(exempt('https://anything.test/', '*'));
  t.false(exempt('https://anything.test/', ' , '));
});
