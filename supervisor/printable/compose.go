package printable

import "unicode"

// The two tables below are the part of Unicode 14's normalisation data that
// composed needs; they follow from UnicodeData.txt and
// CompositionExclusions.txt (Unicode Standard Annex #15).

// notComposed holds what never occurs in NFC (NFC_Quick_Check=No).
var notComposed = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0340, 0x0341, 1},
		{0x0343, 0x0344, 1},
		{0x0374, 0x0374, 1},
		{0x037e, 0x037e, 1},
		{0x0387, 0x0387, 1},
		{0x0958, 0x095f, 1},
		{0x09dc, 0x09dd, 1},
		{0x09df, 0x09df, 1},
		{0x0a33, 0x0a33, 1},
		{0x0a36, 0x0a36, 1},
		{0x0a59, 0x0a5b, 1},
		{0x0a5e, 0x0a5e, 1},
		{0x0b5c, 0x0b5d, 1},
		{0x0f43, 0x0f43, 1},
		{0x0f4d, 0x0f4d, 1},
		{0x0f52, 0x0f52, 1},
		{0x0f57, 0x0f57, 1},
		{0x0f5c, 0x0f5c, 1},
		{0x0f69, 0x0f69, 1},
		{0x0f73, 0x0f73, 1},
		{0x0f75, 0x0f76, 1},
		{0x0f78, 0x0f78, 1},
		{0x0f81, 0x0f81, 1},
		{0x0f93, 0x0f93, 1},
		{0x0f9d, 0x0f9d, 1},
		{0x0fa2, 0x0fa2, 1},
		{0x0fa7, 0x0fa7, 1},
		{0x0fac, 0x0fac, 1},
		{0x0fb9, 0x0fb9, 1},
		{0x1f71, 0x1f71, 1},
		{0x1f73, 0x1f73, 1},
		{0x1f75, 0x1f75, 1},
		{0x1f77, 0x1f77, 1},
		{0x1f79, 0x1f79, 1},
		{0x1f7b, 0x1f7b, 1},
		{0x1f7d, 0x1f7d, 1},
		{0x1fbb, 0x1fbb, 1},
		{0x1fbe, 0x1fbe, 1},
		{0x1fc9, 0x1fc9, 1},
		{0x1fcb, 0x1fcb, 1},
		{0x1fd3, 0x1fd3, 1},
		{0x1fdb, 0x1fdb, 1},
		{0x1fe3, 0x1fe3, 1},
		{0x1feb, 0x1feb, 1},
		{0x1fee, 0x1fef, 1},
		{0x1ff9, 0x1ff9, 1},
		{0x1ffb, 0x1ffb, 1},
		{0x1ffd, 0x1ffd, 1},
		{0x2000, 0x2001, 1},
		{0x2126, 0x2126, 1},
		{0x212a, 0x212b, 1},
		{0x2329, 0x232a, 1},
		{0x2adc, 0x2adc, 1},
		{0xf900, 0xfa0d, 1},
		{0xfa10, 0xfa10, 1},
		{0xfa12, 0xfa12, 1},
		{0xfa15, 0xfa1e, 1},
		{0xfa20, 0xfa20, 1},
		{0xfa22, 0xfa22, 1},
		{0xfa25, 0xfa26, 1},
		{0xfa2a, 0xfa6d, 1},
		{0xfa70, 0xfad9, 1},
		{0xfb1d, 0xfb1d, 1},
		{0xfb1f, 0xfb1f, 1},
		{0xfb2a, 0xfb36, 1},
		{0xfb38, 0xfb3c, 1},
		{0xfb3e, 0xfb3e, 1},
		{0xfb40, 0xfb41, 1},
		{0xfb43, 0xfb44, 1},
		{0xfb46, 0xfb4e, 1},
	},
	R32: []unicode.Range32{
		{0x1d15e, 0x1d164, 1},
		{0x1d1bb, 0x1d1c0, 1},
		{0x2f800, 0x2fa1d, 1},
	},
}

// starters maps a combining rune to the runes that it would have composed
// with: after one of these it is not NFC. Hangul is computed.
func starters(r rune) string {
	switch r {
	case 0x0300:
		return "\u0041\u0045\u0049\u004e\u004f\u0055\u0057\u0059\u0061\u0065\u0069\u006e\u006f\u0075\u0077\u0079\u00a8\u00c2" +
			"\u00ca\u00d4\u00dc\u00e2\u00ea\u00f4\u00fc\u0102\u0103\u0112\u0113\u014c\u014d\u01a0\u01a1\u01af\u01b0\u0391" +
			"\u0395\u0397\u0399\u039f\u03a5\u03a9\u03b1\u03b5\u03b7\u03b9\u03bf\u03c5\u03c9\u03ca\u03cb\u0415\u0418\u0435" +
			"\u0438\u1f00\u1f01\u1f08\u1f09\u1f10\u1f11\u1f18\u1f19\u1f20\u1f21\u1f28\u1f29\u1f30\u1f31\u1f38\u1f39\u1f40" +
			"\u1f41\u1f48\u1f49\u1f50\u1f51\u1f59\u1f60\u1f61\u1f68\u1f69\u1fbf\u1ffe"
	case 0x0301:
		return "\u0041\u0043\u0045\u0047\u0049\u004b\u004c\u004d\u004e\u004f\u0050\u0052\u0053\u0055\u0057\u0059\u005a\u0061" +
			"\u0063\u0065\u0067\u0069\u006b\u006c\u006d\u006e\u006f\u0070\u0072\u0073\u0075\u0077\u0079\u007a\u00a8\u00c2" +
			"\u00c5\u00c6\u00c7\u00ca\u00cf\u00d4\u00d5\u00d8\u00dc\u00e2\u00e5\u00e6\u00e7\u00ea\u00ef\u00f4\u00f5\u00f8" +
			"\u00fc\u0102\u0103\u0112\u0113\u014c\u014d\u0168\u0169\u01a0\u01a1\u01af\u01b0\u0391\u0395\u0397\u0399\u039f" +
			"\u03a5\u03a9\u03b1\u03b5\u03b7\u03b9\u03bf\u03c5\u03c9\u03ca\u03cb\u03d2\u0413\u041a\u0433\u043a\u1f00\u1f01" +
			"\u1f08\u1f09\u1f10\u1f11\u1f18\u1f19\u1f20\u1f21\u1f28\u1f29\u1f30\u1f31\u1f38\u1f39\u1f40\u1f41\u1f48\u1f49" +
			"\u1f50\u1f51\u1f59\u1f60\u1f61\u1f68\u1f69\u1fbf\u1ffe"
	case 0x0302:
		return "\u0041\u0043\u0045\u0047\u0048\u0049\u004a\u004f\u0053\u0055\u0057\u0059\u005a\u0061\u0063\u0065\u0067\u0068" +
			"\u0069\u006a\u006f\u0073\u0075\u0077\u0079\u007a\u1ea0\u1ea1\u1eb8\u1eb9\u1ecc\u1ecd"
	case 0x0303:
		return "\u0041\u0045\u0049\u004e\u004f\u0055\u0056\u0059\u0061\u0065\u0069\u006e\u006f\u0075\u0076\u0079\u00c2\u00ca" +
			"\u00d4\u00e2\u00ea\u00f4\u0102\u0103\u01a0\u01a1\u01af\u01b0"
	case 0x0304:
		return "\u0041\u0045\u0047\u0049\u004f\u0055\u0059\u0061\u0065\u0067\u0069\u006f\u0075\u0079\u00c4\u00c6\u00d5\u00d6" +
			"\u00dc\u00e4\u00e6\u00f5\u00f6\u00fc\u01ea\u01eb\u0226\u0227\u022e\u022f\u0391\u0399\u03a5\u03b1\u03b9\u03c5" +
			"\u0418\u0423\u0438\u0443\u1e36\u1e37\u1e5a\u1e5b"
	case 0x0306:
		return "\u0041\u0045\u0047\u0049\u004f\u0055\u0061\u0065\u0067\u0069\u006f\u0075\u0228\u0229\u0391\u0399\u03a5\u03b1" +
			"\u03b9\u03c5\u0410\u0415\u0416\u0418\u0423\u0430\u0435\u0436\u0438\u0443\u1ea0\u1ea1"
	case 0x0307:
		return "\u0041\u0042\u0043\u0044\u0045\u0046\u0047\u0048\u0049\u004d\u004e\u004f\u0050\u0052\u0053\u0054\u0057\u0058" +
			"\u0059\u005a\u0061\u0062\u0063\u0064\u0065\u0066\u0067\u0068\u006d\u006e\u006f\u0070\u0072\u0073\u0074\u0077" +
			"\u0078\u0079\u007a\u015a\u015b\u0160\u0161\u017f\u1e62\u1e63"
	case 0x0308:
		return "\u0041\u0045\u0048\u0049\u004f\u0055\u0057\u0058\u0059\u0061\u0065\u0068\u0069\u006f\u0074\u0075\u0077\u0078" +
			"\u0079\u00d5\u00f5\u016a\u016b\u0399\u03a5\u03b9\u03c5\u03d2\u0406\u0410\u0415\u0416\u0417\u0418\u041e\u0423" +
			"\u0427\u042b\u042d\u0430\u0435\u0436\u0437\u0438\u043e\u0443\u0447\u044b\u044d\u0456\u04d8\u04d9\u04e8\u04e9"
	case 0x0309:
		return "\u0041\u0045\u0049\u004f\u0055\u0059\u0061\u0065\u0069\u006f\u0075\u0079\u00c2\u00ca\u00d4\u00e2\u00ea\u00f4" +
			"\u0102\u0103\u01a0\u01a1\u01af\u01b0"
	case 0x030a:
		return "\u0041\u0055\u0061\u0075\u0077\u0079"
	case 0x030b:
		return "\u004f\u0055\u006f\u0075\u0423\u0443"
	case 0x030c:
		return "\u0041\u0043\u0044\u0045\u0047\u0048\u0049\u004b\u004c\u004e\u004f\u0052\u0053\u0054\u0055\u005a\u0061\u0063" +
			"\u0064\u0065\u0067\u0068\u0069\u006a\u006b\u006c\u006e\u006f\u0072\u0073\u0074\u0075\u007a\u00dc\u00fc\u01b7" +
			"\u0292"
	case 0x030f:
		return "\u0041\u0045\u0049\u004f\u0052\u0055\u0061\u0065\u0069\u006f\u0072\u0075\u0474\u0475"
	case 0x0311:
		return "\u0041\u0045\u0049\u004f\u0052\u0055\u0061\u0065\u0069\u006f\u0072\u0075"
	case 0x0313:
		return "\u0391\u0395\u0397\u0399\u039f\u03a9\u03b1\u03b5\u03b7\u03b9\u03bf\u03c1\u03c5\u03c9"
	case 0x0314:
		return "\u0391\u0395\u0397\u0399\u039f\u03a1\u03a5\u03a9\u03b1\u03b5\u03b7\u03b9\u03bf\u03c1\u03c5\u03c9"
	case 0x031b:
		return "\u004f\u0055\u006f\u0075"
	case 0x0323:
		return "\u0041\u0042\u0044\u0045\u0048\u0049\u004b\u004c\u004d\u004e\u004f\u0052\u0053\u0054\u0055\u0056\u0057\u0059" +
			"\u005a\u0061\u0062\u0064\u0065\u0068\u0069\u006b\u006c\u006d\u006e\u006f\u0072\u0073\u0074\u0075\u0076\u0077" +
			"\u0079\u007a\u01a0\u01a1\u01af\u01b0"
	case 0x0324:
		return "\u0055\u0075"
	case 0x0325:
		return "\u0041\u0061"
	case 0x0326:
		return "\u0053\u0054\u0073\u0074"
	case 0x0327:
		return "\u0043\u0044\u0045\u0047\u0048\u004b\u004c\u004e\u0052\u0053\u0054\u0063\u0064\u0065\u0067\u0068\u006b\u006c" +
			"\u006e\u0072\u0073\u0074"
	case 0x0328:
		return "\u0041\u0045\u0049\u004f\u0055\u0061\u0065\u0069\u006f\u0075"
	case 0x032d:
		return "\u0044\u0045\u004c\u004e\u0054\u0055\u0064\u0065\u006c\u006e\u0074\u0075"
	case 0x032e:
		return "\u0048\u0068"
	case 0x0330:
		return "\u0045\u0049\u0055\u0065\u0069\u0075"
	case 0x0331:
		return "\u0042\u0044\u004b\u004c\u004e\u0052\u0054\u005a\u0062\u0064\u0068\u006b\u006c\u006e\u0072\u0074\u007a"
	case 0x0338:
		return "\u003c\u003d\u003e\u2190\u2192\u2194\u21d0\u21d2\u21d4\u2203\u2208\u220b\u2223\u2225\u223c\u2243\u2245\u2248" +
			"\u224d\u2261\u2264\u2265\u2272\u2273\u2276\u2277\u227a\u227b\u227c\u227d\u2282\u2283\u2286\u2287\u2291\u2292" +
			"\u22a2\u22a8\u22a9\u22ab\u22b2\u22b3\u22b4\u22b5"
	case 0x0342:
		return "\u00a8\u03b1\u03b7\u03b9\u03c5\u03c9\u03ca\u03cb\u1f00\u1f01\u1f08\u1f09\u1f20\u1f21\u1f28\u1f29\u1f30\u1f31" +
			"\u1f38\u1f39\u1f50\u1f51\u1f59\u1f60\u1f61\u1f68\u1f69\u1fbf\u1ffe"
	case 0x0345:
		return "\u0391\u0397\u03a9\u03ac\u03ae\u03b1\u03b7\u03c9\u03ce\u1f00\u1f01\u1f02\u1f03\u1f04\u1f05\u1f06\u1f07\u1f08" +
			"\u1f09\u1f0a\u1f0b\u1f0c\u1f0d\u1f0e\u1f0f\u1f20\u1f21\u1f22\u1f23\u1f24\u1f25\u1f26\u1f27\u1f28\u1f29\u1f2a" +
			"\u1f2b\u1f2c\u1f2d\u1f2e\u1f2f\u1f60\u1f61\u1f62\u1f63\u1f64\u1f65\u1f66\u1f67\u1f68\u1f69\u1f6a\u1f6b\u1f6c" +
			"\u1f6d\u1f6e\u1f6f\u1f70\u1f74\u1f7c\u1fb6\u1fc6\u1ff6"
	case 0x0653:
		return "\u0627"
	case 0x0654:
		return "\u0627\u0648\u064a\u06c1\u06d2\u06d5"
	case 0x0655:
		return "\u0627"
	case 0x093c:
		return "\u0928\u0930\u0933"
	case 0x09be:
		return "\u09c7"
	case 0x09d7:
		return "\u09c7"
	case 0x0b3e:
		return "\u0b47"
	case 0x0b56:
		return "\u0b47"
	case 0x0b57:
		return "\u0b47"
	case 0x0bbe:
		return "\u0bc6\u0bc7"
	case 0x0bd7:
		return "\u0b92\u0bc6"
	case 0x0c56:
		return "\u0c46"
	case 0x0cc2:
		return "\u0cc6"
	case 0x0cd5:
		return "\u0cbf\u0cc6\u0cca"
	case 0x0cd6:
		return "\u0cc6"
	case 0x0d3e:
		return "\u0d46\u0d47"
	case 0x0d57:
		return "\u0d46"
	case 0x0dca:
		return "\u0dd9\u0ddc"
	case 0x0dcf:
		return "\u0dd9"
	case 0x0ddf:
		return "\u0dd9"
	case 0x102e:
		return "\u1025"
	case 0x1b35:
		return "\u1b05\u1b07\u1b09\u1b0b\u1b0d\u1b11\u1b3a\u1b3c\u1b3e\u1b3f\u1b42"
	case 0x3099:
		return "\u3046\u304b\u304d\u304f\u3051\u3053\u3055\u3057\u3059\u305b\u305d\u305f\u3061\u3064\u3066\u3068\u306f\u3072" +
			"\u3075\u3078\u307b\u309d\u30a6\u30ab\u30ad\u30af\u30b1\u30b3\u30b5\u30b7\u30b9\u30bb\u30bd\u30bf\u30c1\u30c4" +
			"\u30c6\u30c8\u30cf\u30d2\u30d5\u30d8\u30db\u30ef\u30f0\u30f1\u30f2\u30fd"
	case 0x309a:
		return "\u306f\u3072\u3075\u3078\u307b\u30cf\u30d2\u30d5\u30d8\u30db"
	case 0x110ba:
		return "\U00011099\U0001109b\U000110a5"
	case 0x11127:
		return "\U00011131\U00011132"
	case 0x1133e:
		return "\U00011347"
	case 0x11357:
		return "\U00011347"
	case 0x114b0:
		return "\U000114b9"
	case 0x114ba:
		return "\U000114b9"
	case 0x114bd:
		return "\U000114b9"
	case 0x115af:
		return "\U000115b8\U000115b9"
	case 0x11930:
		return "\U00011935"
	}
	return ""
}
