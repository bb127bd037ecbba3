using System.Diagnostics.CodeAnalysis;

namespace Quantra.Desktop.Mvvm;

/// <summary>Runs only the latest work: starting new work cancels the previous one, for example when another symbol is selected.</summary>
/// <param name="changed">Called when work starts or ends; null = not called.</param>
/// <remarks>For the UI thread only.</remarks>
[SuppressMessage("Usage", "CA2213:Disposable fields should be disposed", Justification = "each run disposes its own source")]
public sealed class LatestTask(Action? changed = null) : IDisposable
{
    private CancellationTokenSource? _source;

    /// <summary>Whether work is running.</summary>
    public bool IsRunning => _source is not null;

    /// <summary>Cancels previous work and runs this one.</summary>
    /// <param name="work">The work. Its token is cancelled by later work.</param>
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
            // replaced by later work
        }
        finally
        {
            if (_source == source)
                Forget();
        }
    }

    /// <summary>Cancels the running work.</summary>
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
