using System.Numerics;

namespace Quantra.Client.Managed;

/// <summary>The random numbers of NumPy's default_rng(seed), bit by bit: PCG64 (O'Neill 2014), seeded by NumPy's SeedSequence.</summary>
internal sealed class NumpyGenerator
{
    private static readonly UInt128 Multiplier = new(0x2360ED051FC65DA4, 0x4385DF649FCCF645);

    private readonly UInt128 _increment;
    private UInt128 _state;
    private uint? _upperHalf;

    /// <param name="seed">At least 0.</param>
    public NumpyGenerator(long seed)
    {
        var words = Seed(seed);
        _increment = (new UInt128(words[2], words[3]) << 1) | 1;
        Step();
        _state += new UInt128(words[0], words[1]);
        Step();
    }

    /// <summary>A number from 0 to <paramref name="count"/> - 1, by Lemire's method (2019).</summary>
    public int Next(int count)
    {
        if (count == 1)
            return 0; // NumPy draws nothing
        var (range, product) = ((uint)count, 0UL);
        var threshold = (0u - range) % range;
        do
            product = (ulong)DrawUInt32() * range;
        while ((uint)product < threshold);
        return (int)(product >> 32);
    }

    /// <summary>The numbers from 0 to <paramref name="count"/> - 1 in random order.</summary>
    public int[] Permutation(int count)
    {
        int[] numbers = [.. Enumerable.Range(0, count)];
        for (var last = count - 1; last > 0; last--)
        {
            var other = DrawMasked((uint)last);
            (numbers[last], numbers[other]) = (numbers[other], numbers[last]);
        }

        return numbers;
    }

    /// <summary>A number from 0 to <paramref name="last"/>, by rejection: NumPy's shuffle uses this method.</summary>
    private int DrawMasked(uint last)
    {
        var mask = uint.MaxValue >> BitOperations.LeadingZeroCount(last);
        uint number;
        do
            number = DrawUInt32() & mask;
        while (number > last);
        return (int)number;
    }

    private uint DrawUInt32()
    {
        if (_upperHalf is { } half)
        {
            _upperHalf = null;
            return half;
        }

        Step();
        var next = BitOperations.RotateRight((ulong)(_state >> 64) ^ (ulong)_state, (int)(_state >> 122));
        _upperHalf = (uint)(next >> 32);
        return (uint)next;
    }

    private void Step() => _state = (_state * Multiplier) + _increment;

    /// <summary>Four words from a seed of 64 bits.</summary>
    private static ulong[] Seed(long seed)
    {
        var (pool, hash) = (new uint[4], 0x43b0d7e5u);
        for (var index = 0; index < pool.Length; index++)
            pool[index] = Hash(index < 2 ? (uint)(seed >> (32 * index)) : 0, ref hash, 0x931e8875);
        for (var source = 0; source < pool.Length; source++)
        {
            for (var target = 0; target < pool.Length; target++)
            {
                if (source != target)
                    pool[target] = Mix(pool[target], Hash(pool[source], ref hash, 0x931e8875));
            }
        }

        var words = new ulong[4];
        hash = 0x8b51f9dd;
        for (var index = 0; index < 8; index++)
            words[index / 2] |= (ulong)Hash(pool[index % pool.Length], ref hash, 0x58f38ded) << (32 * (index % 2));
        return words;
    }

    private static uint Hash(uint value, ref uint hash, uint multiplier)
    {
        value ^= hash;
        hash *= multiplier;
        value *= hash;
        return value ^ (value >> 16);
    }

    private static uint Mix(uint one, uint other)
    {
        var mixed = (one * 0xca01f9dd) - (other * 0x4973f715);
        return mixed ^ (mixed >> 16);
    }
}
