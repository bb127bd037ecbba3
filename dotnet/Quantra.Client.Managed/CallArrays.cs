using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Arrays of one call, which later calls of the same size use again. Not thread-safe.</summary>
internal sealed class CallArrays
{
    /// <summary>Most memory to keep between calls; more would outlive a large panel.</summary>
    private const long MostBytes = 1 << 24;

    private readonly List<Array> _arrays = [];
    private int _taken;
    private long _bytes;

    /// <summary>Whether the arrays are small enough to be kept for the next call.</summary>
    public bool CanBeKept => _bytes <= MostBytes;

    /// <summary>Takes an array of zeros, which is valid until <see cref="Restart"/>. Results must not contain it.</summary>
    public T[] Take<T>(int length)
        where T : unmanaged
    {
        var place = _taken++;
        _bytes += (long)length * Unsafe.SizeOf<T>();
        if (place < _arrays.Count && _arrays[place] is T[] present && present.Length == length)
        {
            Array.Clear(present);
            return present;
        }

        var fresh = new T[length];
        if (place == _arrays.Count)
            _arrays.Add(fresh);
        else
            _arrays[place] = fresh;
        return fresh;
    }

    /// <summary>Takes a copy of values.</summary>
    public T[] Copy<T>(ReadOnlySpan<T> values)
        where T : unmanaged
    {
        var copy = Take<T>(values.Length);
        values.CopyTo(copy);
        return copy;
    }

    /// <summary>Begins the next call.</summary>
    public void Restart() => (_taken, _bytes) = (0, 0);
}
