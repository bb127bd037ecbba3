using System.Diagnostics.CodeAnalysis;

namespace Quantra.Desktop.Mvvm;

/// <summary>Work of which only the latest counts: another symbol is chosen while the last one's forecast is on its way.</summary>
/// <param name="changed">Told when work begins or ends; null = nobody is.</param>
/// <remarks>For one thread, the window's.</remarks>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "each run disposes its own")]
public sealed class Latest(Action? changed = null) : IDisposable
{
    private CancellationTokenSource? _source;

    /// <summary>Whether there is work that counts.</summary>
    public bool IsRunning => _source is not null;

    /// <summary>Does this, and gives up what was begun before.</summary>
    /// <param name="work">Its token is cancelled when there is later work.</param>
    public async Task RunAsync(Func<CancellationToken, Task> work)
    {
        ArgumentNullException.ThrowIfNull(work);
        Cancel();
        using var source = new CancellationTokenSource();
        _source = source;
        changed?.Invoke();
        try
        {
            await work(source.Token);
        }
        catch (OperationCanceledException) when (source.IsCancellationRequested)
        {
            // Something later took its place.
        }
        finally
        {
            if (_source == source)
                Forget();
        }
    }

    /// <summary>Gives up what is under way.</summary>
    public void Cancel()
    {
        if (_source is not { } source)
            return;
        Forget();
        source.Cancel();
    }

    /// <inheritdoc/>
    public void Dispose() => Cancel();

    private void Forget()
    {
        _source = null;
        changed?.Invoke();
    }
}
