using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Managed;

/// <summary>Objects that later calls use again. Thread-safe.</summary>
/// <remarks>ConcurrentBag would lengthen the start of a process by its event source.</remarks>
internal sealed class UnusedObjects<T>
    where T : class
{
    private readonly Stack<T> _objects = [];

    /// <summary>Takes an object, if there is one.</summary>
    public bool TryTake([NotNullWhen(true)] out T? taken)
    {
        lock (_objects)
            return _objects.TryPop(out taken);
    }

    /// <summary>Adds an object that is not used any more.</summary>
    public void Add(T unused)
    {
        lock (_objects)
            _objects.Push(unused);
    }
}
